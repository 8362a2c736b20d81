"""Whether a strategy refused a scenario, as it may refuse what it does not claim, or failed in it. Pure.

Special here: an error is a refusal only if the observer cannot have caused it. If a tensor was read or written too
early, the marker that fills tensors in flight spreads as NaN, and torch may raise on that. If the scenario needs only a
dtype that is not claimed, an error is a refusal only if it mentions dtypes, or if it was raised before the first step,
names the optimizer, and that is not SGD.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from verifier.lines import MAKING_OPTIMIZER, SHARES_MEMORY, WRAPPING
from verifier.marker import INTEGERS, holds_poison

if TYPE_CHECKING:
    from verifier.recording import Collective, RankRecording, Recording

FROM_C = re.compile(r"\[rank\d+\]:\[[A-Z]\d{4} [\d:.]+ \S+\] ")  # prefix of torch's C++ messages: rank, time, place
WAITED_FOR = ("waited", "polled", "future")
UNNAMED_INDEX = "index out of range in self"  # torch's words where it does not say which index it was
NAMES_A_DTYPE = re.compile(r"dtype|float(16|32|64)|\bdouble(tensor)?\b|\bb?fp?(16|32|64)\b", re.IGNORECASE)


def refusal(recording: Recording) -> str | None:
    """The strategy's message if it refused: every rank raised, at least one of them for a reason of its own, the
    contract does not claim what the scenario needs, and no rank misused a tensor in flight. None if it did not refuse.
    """
    contract = recording.ranks[0].notes.get("contract")  # absent if the strategy was not even imported
    unclaimed = [need for need in recording.scenario.needs if contract and not claims(contract, need)]
    outcomes = {rank.rank: rank.outcome or {} for rank in recording.ranks}
    unclaimed += ["small_caps"] if recording.scenario.small_caps else []  # no contract claims that any cap will do
    if not unclaimed or not all(outcome.get("status") == "raised" for outcome in outcomes.values()):
        return None
    if any(SHARES_MEMORY in rank.notes for rank in recording.ranks):  # the observer refused, not the strategy
        return None
    own = [rank for rank in recording.ranks if outcomes[rank.rank].get("error", "own") == "own"]
    if not own or any(misused_in_flight(rank) for rank in recording.ranks):
        return None
    said = last_words(str(outcomes[own[0].rank]["detail"]))
    if unclaimed == ["float64"] and not (NAMES_A_DTYPE.search(said) or _refuses_the_optimizer(recording, own[0], said)):
        return None
    if any(rank.notes.get("loading") for rank in own) and not said.startswith("NotImplementedError"):
        return None  # it saved, and cannot load what it saved: a strategy without this must say so before it saves
    if any(stopped_by_what_it_loaded(recording, rank) for rank in own):
        return None
    return said


def _refuses_the_optimizer(recording: Recording, rank: RankRecording, said: str) -> bool:
    """Return whether ``rank`` raised before the first step and named the optimizer, as a strategy made for one class of
    optimizers does. An AttributeError names the class as well, but shows an unhandled case, so it does not count.
    """
    optimizer, when = recording.scenario.optimizer, str((rank.outcome or {}).get("when"))
    named = optimizer != "sgd" and optimizer in said.lower() and not said.startswith("AttributeError")
    return named and when in (WRAPPING, MAKING_OPTIMIZER)


def stopped_by_what_it_loaded(recording: Recording, rank: RankRecording) -> bool:
    """Return whether the optimizer raised in its first step after loading, as when a state is another parameter's.

    Where no step came before it, the strategy may not get through any.
    """
    last, outcome = recording.scenario.resume_after, rank.outcome or {}
    if last is None or last < 0 or rank.notes.get("loading") is not False or outcome.get("error") != "own":
        return False
    return str(outcome.get("when")) == f"in step {last + 1} (step)"


def misused_in_flight(rank: RankRecording) -> bool:
    """Return whether the strategy touched a tensor in flight on this rank and waited for it later.

    A collective that was never waited for is no evidence: a wrapper that refuses leaves it behind, with gradients that
    are views of its tensor, or that autograd has added to since.
    """
    if any(c.written_in_flight and c.how in WAITED_FOR for c in rank.collectives) or stumbled_on_marker(rank):
        return True
    for (what, step, _), tensor in rank.tensors.items():
        if what == "gradient" and tensor.values is not None and holds_poison(tensor.values):
            return all(c.how in WAITED_FOR for c in rank.collectives if c.step <= step)
    return False


def stumbled_on_marker(rank: RankRecording) -> Collective | None:
    """Return the collective in flight whose marker this rank's own error is about: a size, or an index, that was used
    too early. Integers only: arithmetic on a NaN raises nothing. What is sent holds no marker.
    """
    outcome = rank.outcome or {}
    if outcome.get("status") != "raised" or outcome.get("error", "own") != "own":
        return None
    said = last_words(str(outcome.get("detail")))
    filled = [c for c in rank.collectives if c.dtype in INTEGERS and not c.refused and not c.only_sends]
    in_flight = (c for c in filled if c.landed is None)
    return next((c for c in in_flight if INTEGERS[c.dtype] in said or UNNAMED_INDEX in said), None)


def last_words(detail: str) -> str:
    """The exception at the end of a traceback, on one line: the text after the last frame."""
    lines = detail.splitlines()
    frames = [place for place, line in enumerate(lines) if line.startswith('  File "')]
    after = frames[-1] + 1 if frames else -1
    while frames and lines[after:] and lines[after].startswith("  "):  # the frame's source; exceptions begin unindented
        after += 1
    message = " ".join(line.strip() for line in lines[after:] if line.strip())
    message = message or next((line.strip() for line in reversed(lines) if line.strip()), "")
    message = FROM_C.sub("", message)
    return message if len(message) <= 300 else message[:297] + "..."


def claims(contract: dict[str, Any], need: str) -> bool:
    """Return whether the recorded ``contract`` claims ``need``, as a field of its own or in ``supports``."""
    return bool(contract.get(need, need in contract.get("supports", ())))
