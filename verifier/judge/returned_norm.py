"""Whether a strategy's own ``clip_grad_norm_()`` returns the norm of all gradients. Pure functions on recordings.

Special here: it may clip correctly and still return the norm of this rank's part alone. Loops log that norm, and skip
steps by it; ranks with different norms would then not skip the same steps.
"""

from __future__ import annotations

from verifier.judge.arithmetic import dtypes, is_lossy
from verifier.judge.comparison import UNIT_ROUNDOFF
from verifier.lines import NORM
from verifier.recording import Recording
from verifier.verdict import Failure

EXPLAINS = "LS201"  # failures of this check: `causes` reads it here
NEAR = 1e-5  # relative; torch sums squares in the dtype of the gradients, and other implementations add 1e-6
NEAR_IN_HALVES = 16 * UNIT_ROUNDOFF["bfloat16"]  # if some gradients are in half precision


def wrong_norms(recording: Recording) -> list[Failure]:
    """A failure for each rank on which the first step's norm differs from the single process's.

    Call this if the gradients are right. Later steps are not compared: their gradients may rightly differ under the
    strategy's own rule, or differ by a mistake that LS202 reports.
    """
    alone = recording.reference.tensor("norm", 0, NORM) if recording.reference is not None else None
    if is_lossy(recording) or alone is None or alone.values is None:
        return []
    due, failures = float(alone.values), []
    near = NEAR_IN_HALVES if dtypes(recording) & {"float16", "bfloat16"} else NEAR
    told = {rank.rank: rank.tensor("norm", 0, NORM) for rank in recording.ranks}
    if not any(told.values()):
        return []
    for rank, norm in told.items():
        returned = None if norm is None or norm.values is None else float(norm.values)
        if returned is None or not abs(returned - due) <= near * due:
            failures.append(_failure(recording, rank, returned, due))
    return failures


def _failure(recording: Recording, rank: int, returned: float | None, due: float) -> Failure:
    number = "no number, as it does on other ranks," if returned is None else f"{returned:.6g}"
    return Failure(
        scenario=recording.scenario.name,
        step=0,
        rank=rank,
        expected=repr(due),
        observed=repr(returned),
        cause="norm_misstated",
        confidence=0.9,
        explanation=f"clip_grad_norm_() returns {number} on rank {rank} in step 0, and the norm of all "
        f"gradients was {due:.6g}, though they are clipped as they should be",
        hint="return the norm over all ranks' parts, before clipping, on every rank: loops leave out steps by it",
    )
