"""Groups of ranks smaller than the job: pairs of neighbours, or single ranks if there are two.

Special here: replicas in different groups take different samples and diverge. A strategy in a group is therefore
compared with that group's own large batch, and using a rank, a world size or a root of the whole job is wrong in it.
"""

from __future__ import annotations

from collections.abc import Sequence


def groups(world_size: int) -> list[tuple[int, ...]]:
    """The ranks of each group, by global rank. With an odd number of ranks the last one is alone."""
    size = 2 if world_size > 2 else 1
    return [tuple(range(first, min(first + size, world_size))) for first in range(0, world_size, size)]


def members(world_size: int, rank: int) -> tuple[int, ...]:
    """The group that ``rank`` is in."""
    return next(group for group in groups(world_size) if rank in group)


def listed(ranks: Sequence[int]) -> str:
    """``ranks`` in words: "rank 1", "ranks 2, 3"."""
    return f"rank{'s' if len(ranks) > 1 else ''} {', '.join(map(str, ranks))}"
