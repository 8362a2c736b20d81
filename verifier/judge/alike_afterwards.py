"""Names the mistake of stepping by local gradients and making weights equal after the step (``weights_made_alike``).

Special here: the optimizer's state tells two strategies apart. If gradients are reduced out of sight, momentum is the
same on all ranks, or only the owner has it. If each rank steps by its local gradient, momentum differs between ranks
though weights are equal. Where ``step()`` communicates and nothing tells them apart, both are said. Pure functions on
recordings.
"""

from __future__ import annotations

from verifier.judge.agreement import STATES
from verifier.judge.evidence import Cause
from verifier.recording import Recording
from verifier.verdict import Failure

EXPLAINS = "LS201"  # failures of this check: `causes` reads it here
MAYBE = 0.6  # nothing tells the two apart
SURE = 0.95  # optimizer state may differ for another reason


def told_by_state(recording: Recording, failures: list[Failure]) -> list[Failure]:
    """``failures``, with ``weights_made_alike`` in place of ``not_synchronised`` where weights and states show it."""
    return [_as_told(recording, failure) if _weights_alike(recording, failure) else failure for failure in failures]


def _weights_alike(recording: Recording, failure: Failure) -> bool:
    """Return whether a rank holds its own gradient alone, and all ranks have equal weights after the step."""
    name, step = failure.parameter, failure.step
    if failure.cause != "not_synchronised" or failure.confidence < 1.0 or name is None or step is None:
        return False
    if recording.scenario.world_size == 1 or not recording.complete:
        return False
    return len(_digests(recording, "weight", step, name)) == 1


def _as_told(recording: Recording, failure: Failure) -> Failure:
    last = recording.scenario.num_steps - 1
    states = (f"{failure.parameter}/{key}" for key in STATES)
    if any(len(_digests(recording, "optimizer_state", last, state)) > 1 for state in states):
        return _told(failure)
    calls = recording.ranks[failure.rank or 0].collectives
    if not any(call.phase == "step" and call.step == failure.step and not call.is_a_figure for call in calls):
        return failure
    return failure.model_copy(
        update={
            "confidence": MAYBE,
            "explanation": f"rank {failure.rank} holds its own local gradient. step() communicates, and all ranks have "
            "the same weights after it, which are not those of the mean gradient: what it exchanges is not the mean "
            "(a part of it, something compressed), or weights are made alike in place of gradients",
            "hint": "exchange whole gradients, or what adds up to them, and step by their mean; a rule meant to be "
            "another one than one process's cannot pass",
        }
    )


def _digests(recording: Recording, what: str, step: int, name: str) -> set[str]:
    """The distinct digests that ranks hold; empty if a rank lacks the tensor."""
    tensors = [rank.tensor(what, step, name) for rank in recording.ranks]
    found = {tensor.digest for tensor in tensors if tensor is not None}
    return set() if None in tensors else found


def _told(failure: Failure) -> Failure:
    cause = Cause(
        "weights_made_alike",
        SURE,
        f"rank {failure.rank} steps by its own local gradient, with momentum of its own, and after the step all ranks "
        "hold the same weights: these are averaged, or sent by one rank, in place of gradients",
        "reduce gradients before the step; a mean of weights comes to the same under plain SGD alone, and not with "
        "momentum, Adam or clipping",
    )
    named = {"cause": cause.name, "confidence": cause.confidence, "explanation": cause.explanation, "hint": cause.hint}
    return failure.model_copy(update=named)
