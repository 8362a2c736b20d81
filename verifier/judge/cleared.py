"""A gradient that is all zeros and should not be: it was cleared, lost, or never copied back.

Special here: many mistakes leave zeros where a rank's own gradient was zero. So nothing is concluded if any rank's own
gradient is all zeros, absent or unknown.
"""

from __future__ import annotations

import numpy as np

from verifier.judge.evidence import FEWEST_ELEMENTS, Cause, GradientEvidence

EXPLAINS = "LS201"  # failures of this check: `causes` reads it here
HINT = (
    "call zero_grad() before the backward, not between the reduction and the step; copy what a collective has brought "
    "back to .grad on every rank; where the code does, suspect the transport"
)


def cleared(e: GradientEvidence) -> Cause | None:
    """The cause if all elements are 0, on this rank or on all."""
    if e.observed.shape != e.expected.shape or e.observed.any() or not e.expected.any():
        return None
    if len(e.local) < e.world_size or e.passed_by or any(not gradient.any() for gradient in e.local.values()):
        return None
    if e.clipped and e.agreed and _square_overflows(e):
        return Cause(
            "norm_overflowed",
            0.9,
            "every element is 0 on every rank: it was clipped by a norm whose square float16 does not hold",
            "add up the squares of gradients in float32",
        )
    where = "every rank" if e.agreed and e.world_size > 1 else f"rank {e.rank}"
    others = "" if e.agreed or e.world_size == 1 else ", and not so on all ranks"
    return Cause(
        "gradient_cleared",
        0.8 if e.observed.size >= FEWEST_ELEMENTS else 0.6,
        f"every element is 0 on {where}{others}: what was reduced there was cleared, or lost, or not written back",
        HINT,
    )


def _square_overflows(e: GradientEvidence) -> bool:
    mean = np.mean([gradient.astype(np.result_type(gradient, np.float64)) for gradient in e.local.values()], axis=0)
    return bool((np.abs(mean) ** 2).sum() > np.finfo(np.float16).max)
