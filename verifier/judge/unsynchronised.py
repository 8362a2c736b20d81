"""A gradient that was never reduced: the rank holds its own gradient, or a multiple of it, instead of the mean.

Special here: a gradient that is equal on all ranks is not an unreduced one. The ranks' own gradients are known only in
the first step. In later steps it must suffice that the ranks differ and that their mean is right.
"""

from __future__ import annotations

import numpy as np

from verifier.judge.evidence import FEWEST_ELEMENTS, Cause, GradientEvidence, close
from verifier.judge.shares import tell_ranks_apart

EXPLAINS = "LS201"  # failures of this check: `causes` reads it here


def reduced_to_another(e: GradientEvidence) -> Cause | None:
    """The cause if all went to one rank by ``reduce``, which leaves others their own, or a partial sum (gloo)."""
    if e.reduced_to is None or e.agreed:
        return None
    return Cause(
        "reduced_to_one_rank",
        0.85,  # a parameter server reduces to one rank, too, and its workers may only fetch weights too late
        f"all that rank {e.rank} sent was reduced to rank {e.reduced_to}, which alone has the result: what rank "
        f"{e.rank} holds is its own gradient, or a partial sum",
        "use all_reduce, or broadcast from the root what was reduced to it",
    )


def own_value(e: GradientEvidence) -> Cause | None:
    """The cause if the rank holds its own gradient, or its own divided by the world size."""
    if e.agreed:  # all ranks hold this rank's gradient, so it was not left unreduced
        return None
    if e.rank in e.local and close(e.observed, e.local[e.rank]):
        return Cause(
            "not_synchronised",
            1.0,
            f"rank {e.rank} holds exactly its own local gradient: it was never reduced, or its result was dropped",
            "make sure that every parameter is in some collective, and that the result is written back to .grad",
        )
    if e.world_size > 1 and e.rank in e.local and close(e.observed * e.world_size, e.local[e.rank]):
        return Cause(
            "not_synchronised",
            0.95,
            f"rank {e.rank} holds its own local gradient divided by {e.world_size}, the number of ranks: averaged, but "
            "never summed",
            "make sure that every parameter is in some collective, the last bucket's included",
        )
    return None


def own_multiple(e: GradientEvidence) -> Cause | None:
    """The cause if the rank holds a multiple of its own gradient. Not for tags, all multiples of one another."""
    own = e.local.get(e.rank)
    others = [gradient for rank, gradient in e.local.items() if rank != e.rank and np.any(gradient)]
    if own is None or not others or e.agreed or e.clipped or not tell_ranks_apart(e):
        return None
    if np.count_nonzero(own) < FEWEST_ELEMENTS:
        return None
    square = float(np.vdot(own, own).real)
    factor = float(np.vdot(own, e.observed).real) / square if square else 0.0
    if factor == 0 or not close(e.observed, own * factor):
        return None
    return Cause(
        "not_synchronised",
        0.9,
        f"rank {e.rank} holds its own local gradient times {factor:.4g}, and nothing of any other rank's",
        "make sure that every parameter is in some collective, and that the result is written back to .grad",
    )


def not_one_another(e: GradientEvidence) -> Cause | None:
    """The cause, in a later step without known own gradients, if ranks hold different gradients whose mean is right."""
    if e.agreed or e.local or len(e.held) < max(e.world_size, 2):
        return None
    if {gradient.shape for gradient in e.held.values()} != {e.expected.shape}:
        return None
    if not close(np.mean([*e.held.values()], axis=0), e.expected):
        return None
    return Cause(
        "not_synchronised",
        0.85,
        "the ranks hold different gradients, whose mean is what each of them should hold: in this step they were not "
        "reduced",
        "make sure that in every step every trained parameter is in some collective, new and unfrozen ones as well",
    )
