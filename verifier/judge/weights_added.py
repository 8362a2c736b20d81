"""Whether a gradient is the right one plus the weights: a buffer that held weights, or a decay that is added twice.

Special here: the factor is not asked for beforehand. What is too much is compared with its projection on the weights,
so a decay of any size fits, and weights that lie in the buffer in which gradients are then accumulated, as averaged
over ranks or not.
"""

from __future__ import annotations

import numpy as np

from verifier.judge.evidence import FEWEST_ELEMENTS, Cause, GradientEvidence, close

EXPLAINS = "LS201"  # failures of this check: `causes` reads it here


def weights_added(e: GradientEvidence) -> Cause | None:
    if e.weight is None or e.clipped or np.count_nonzero(e.weight) < FEWEST_ELEMENTS:
        return None
    too_much, square = e.observed - e.expected, float(np.vdot(e.weight, e.weight).real)
    factor = float(np.vdot(e.weight, too_much).real) / square
    if close(e.observed, e.expected) or not close(e.observed, e.expected + e.weight * factor):
        return None
    return Cause(
        "weights_added",
        0.9,
        f"what is too much in the gradient is {factor:.6g} times the weights as they were before the step",
        "where the buffer of gradients also receives weights, zero it before the backward; leave weight decay to the "
        "optimizer",
    )
