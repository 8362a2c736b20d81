"""Which ranks meet what is not finite, a gradient or a loss, and in which step.

Special here: who lets one rank decide for all is right wherever that rank is the one. So it is the last rank in some
situations, and in others rank 0 and the last rank in turn.
"""

from __future__ import annotations

from verifier.scenario import Scenario

LATER = 3  # the step in which others meet it than did first: all ranks, or the last one, if rank 0 was first
ON_ALL = 5  # of gradients, if rank 0 was first: the step in which all ranks meet it at last
RANK_0S_LOSSES = (1, 5)  # of losses: rank 0's come before the last rank's and after, so that time alone is no reason


def is_spiked(scenario: Scenario, rank: int, step: int) -> bool:
    """Does ``rank`` meet it in ``step``?"""
    last = rank == scenario.world_size - 1
    if not scenario.rank_0_first:
        return last if scenario.infinite_loss or step == 0 else step == LATER
    if scenario.overflow and step == ON_ALL:
        return True
    rank_0s = RANK_0S_LOSSES if scenario.infinite_loss else (0,)
    return (rank == 0 and step in rank_0s) or (last and step == LATER)


def spiked_first(scenario: Scenario) -> int:
    """The rank that meets it alone, before others do."""
    return 0 if scenario.rank_0_first else scenario.world_size - 1


def added_to_loss(scenario: Scenario, rank: int, step: int) -> float:
    """The constant that makes the loss infinite, or no number, and no gradient of it; 0 where it stays as it is."""
    return float(scenario.spike) if scenario.infinite_loss and is_spiked(scenario, rank, step) else 0.0


# By step, how many times as long the last rank's gradients are. A guard whose threshold lies between that and the length
# of the mean over ranks, about half of it on two, skips on this rank alone; so the lengths lie closer than a half. The
# longest come first: a guard that skips them keeps what it knows of usual lengths, for the shorter ones.
SURGES = {20: 36.0, 25: 26.0, 30: 19.0, 35: 14.0, 40: 10.0, 45: 7.5, 50: 5.5, 55: 4.0, 60: 3.0}


def surge(scenario: Scenario, rank: int, step: int) -> float:
    """Return by what the gradients of ``rank`` are multiplied in ``step``."""
    return SURGES.get(step, 1.0) if scenario.surges and rank == scenario.world_size - 1 else 1.0
