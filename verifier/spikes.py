"""Which ranks get a gradient or a loss that is not finite, and in which step.

Special here: a strategy that lets one rank decide for all is right if the spike is on that rank. So the spike is on the
last rank in some situations, and on rank 0 and the last rank in turn in others.
"""

from __future__ import annotations

from verifier.scenario import Scenario

LATER = 3  # the step of the others' spike: all of them, or the last rank if rank 0 was first
ON_ALL = 5  # for gradients, if rank 0 was first: the step in which all ranks meet it
RANK_0S_LOSSES = (1, 5)  # for losses: rank 0's come before and after the last rank's, so time is no reason


def is_spiked(scenario: Scenario, rank: int, step: int) -> bool:
    """Return whether ``rank`` has the spike in ``step``."""
    last = rank == scenario.world_size - 1
    if scenario.spike_early:
        return last and step in (0, LATER)
    if not scenario.rank_0_first:
        return last if scenario.infinite_loss or step == 0 else step == LATER
    if scenario.overflow and step == ON_ALL:
        return True
    rank_0s = RANK_0S_LOSSES if scenario.infinite_loss else (0,)
    return (rank == 0 and step in rank_0s) or (last and step == LATER)


def spiked_micro_batch(scenario: Scenario, step: int) -> int:
    """The micro-batch of ``step`` in which a spike is, where there is one: the last, or for ``spike_early`` the first
    of the later step.
    """
    return 0 if scenario.spike_early and step == LATER else scenario.num_micro_batches - 1


def spiked_first(scenario: Scenario) -> int:
    """The rank that has the first spike, alone."""
    return 0 if scenario.rank_0_first else scenario.world_size - 1


def added_to_loss(scenario: Scenario, rank: int, step: int) -> float:
    """The constant that makes the loss, but no gradient, infinite or NaN; 0 where the loss stays as it is."""
    return float(scenario.spike) if scenario.infinite_loss and is_spiked(scenario, rank, step) else 0.0


# By step, how many times as long the last rank's gradients are. A guard whose threshold lies between that and the
# length of the mean over ranks, about half of it on two, skips on this rank alone; so each length is more than half of
# the one before. The longest come first: a guard that skips them keeps its record of usual lengths for the others.
SURGES = {20: 36.0, 25: 26.0, 30: 19.0, 35: 14.0, 40: 10.0, 45: 7.5, 50: 5.5, 55: 4.0, 60: 3.0}


def surge(scenario: Scenario, rank: int, step: int) -> float:
    """Return by what the gradients of ``rank`` are multiplied in ``step``."""
    return SURGES.get(step, 1.0) if scenario.surges and rank == scenario.world_size - 1 else 1.0
