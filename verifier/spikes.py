"""Which ranks meet what is not finite, a gradient or a loss, and in which step.

Special here: who lets one rank decide for all is right wherever that rank is the one. So it is the last rank in some
situations, and in others rank 0 first and the last rank later.
"""

from __future__ import annotations

from verifier.scenario import Scenario

LATER = 3  # the step in which other ranks meet it than did before
BEFORE = 1  # of losses, the step in which rank 0 does: one has been taken then


def is_spiked(scenario: Scenario, rank: int, step: int) -> bool:
    """Is ``rank`` one that meets it in ``step``?"""
    if scenario.infinite_loss and not scenario.rank_0_first:
        return rank == scenario.world_size - 1
    first = BEFORE if scenario.infinite_loss else 0
    if step == first:
        return rank == spiked_first(scenario)
    return step == LATER and (rank == scenario.world_size - 1 or not scenario.rank_0_first)


def spiked_first(scenario: Scenario) -> int:
    """The rank that meets it alone, before others do."""
    return 0 if scenario.rank_0_first else scenario.world_size - 1


def added_to_loss(scenario: Scenario, rank: int, step: int) -> float:
    """The constant that makes the loss infinite, or no number, and no gradient of it; 0 where it stays as it is."""
    return float(scenario.spike) if scenario.infinite_loss and is_spiked(scenario, rank, step) else 0.0
