"""Whether ranks sent only their largest elements, or random ones: each element then sums different ranks' shares.

Special here: all 2^W sums of the ranks' own gradients are tried, so this is not checked on many ranks.
"""

from __future__ import annotations

from itertools import combinations

import numpy as np

from verifier.judge.evidence import FEWEST_ELEMENTS, Cause, GradientEvidence

EXPLAINS = "LS201"  # failures of this check: `causes` reads it here
MOST_RANKS_TRIED = 6  # 2^W sums are tried


def elements_left_out(e: GradientEvidence) -> Cause | None:
    """The cause if every element is the sum of some ranks' shares, of different ranks in different elements."""
    if not e.agreed or not 2 <= e.world_size <= MOST_RANKS_TRIED or len(e.local) < e.world_size:
        return None
    if any(gradient.shape != e.observed.shape for gradient in e.local.values()):
        return None
    scale = 1e-6 * max(float(np.abs(gradient).max(initial=0.0)) for gradient in e.local.values())
    fits = np.zeros(e.observed.shape, bool)
    for size in range(e.world_size + 1):
        for group in combinations(range(e.world_size), size):
            total = np.sum([np.zeros_like(e.expected), *(e.local[rank] for rank in group)], axis=0)
            same = np.abs(e.observed * e.world_size - total) <= scale
            if same.all():
                return None  # the same ranks everywhere: that is another mistake
            fits |= same
    if not fits.all() or e.observed.size < FEWEST_ELEMENTS:
        return None
    return Cause(
        "elements_left_out",
        0.8,
        "every element is a sum of some ranks' shares divided by the number of ranks, and not of the same ranks "
        "everywhere: ranks sent a part of their elements only",
        "send all elements, or keep what was not sent and declare the loss",
    )
