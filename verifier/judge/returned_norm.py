"""Is the norm that a strategy's own ``clip_grad_norm_()`` returns that of all gradients? Pure functions on recordings.

Special here: it may have clipped rightly and return the norm of this rank's part all the same. Loops write it into
their logs, and leave out steps by it, which ranks then do not do together.
"""

from __future__ import annotations

from verifier.judge.arithmetic import is_lossy
from verifier.lines import NORM
from verifier.recording import Recording
from verifier.verdict import Failure

NEAR = 1e-5  # relative; torch sums squares in the dtype of the gradients, and others add 1e-6


def wrong_norms(recording: Recording) -> list[Failure]:
    """A failure for each rank that was returned another norm than the single process, in the first step that has one.

    To be asked where the gradients themselves are right.
    """
    if is_lossy(recording):
        return []
    for step in range(recording.scenario.num_steps):
        alone = recording.reference.tensor("norm", step, NORM) if recording.reference is not None else None
        if alone is None or alone.values is None:
            continue
        due, failures = float(alone.values), []
        for rank in recording.ranks:
            told = rank.tensor("norm", step, NORM)
            returned = due if told is None or told.values is None else float(told.values)
            if not abs(returned - due) <= NEAR * due:
                failures.append(_failure(recording, rank.rank, step, returned, due))
        if failures:
            return failures
    return []


def _failure(recording: Recording, rank: int, step: int, returned: float, due: float) -> Failure:
    return Failure(
        scenario=recording.scenario.name,
        step=step,
        rank=rank,
        expected=repr(due),
        observed=repr(returned),
        cause="norm_misstated",
        confidence=0.9,
        explanation=f"clip_grad_norm_() returns {returned:.6g} on rank {rank} in step {step}, and the norm of all "
        f"gradients was {due:.6g}, though they are clipped as they should be",
        hint="return the norm over all ranks' parts, before clipping, on every rank: loops leave out steps by it",
    )
