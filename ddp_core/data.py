"""Distributes samples over ranks: disjoint and complete shards, and loaders for training and evaluation.

Special here: training and evaluation have different needs. Training needs the same number of batches on every rank,
so torch's DistributedSampler repeats a few samples; evaluation must count every sample once, so its shards are uneven.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch.utils.data import DataLoader, Dataset, DistributedSampler, Sampler


def contiguous_shard(num_samples: int, rank: int, world_size: int) -> range:
    """The samples of ``rank``: shards are disjoint, complete, in order, and their sizes differ by at most one.

    Raises ValueError if ``rank`` is not below ``world_size`` or a number is negative.
    """
    if not 0 <= rank < world_size or num_samples < 0:
        raise ValueError(f"rank {rank} of {world_size} cannot take a shard of {num_samples} samples")
    return range(rank * num_samples // world_size, (rank + 1) * num_samples // world_size)


class ShardSampler(Sampler[int]):
    """This rank's contiguous shard, in order: for evaluation. No sample is repeated, none left out."""

    def __init__(self, num_samples: int, rank: int, world_size: int) -> None:
        self.shard = contiguous_shard(num_samples, rank, world_size)

    def __iter__(self) -> Iterator[int]:
        return iter(self.shard)

    def __len__(self) -> int:
        return len(self.shard)


@dataclass(frozen=True)
class Loaders:
    """A rank's loaders. Take training batches from ``epoch(n)``: without it every epoch has the same order."""

    train: DataLoader[Any]
    evaluation: DataLoader[Any]

    def epoch(self, number: int) -> DataLoader[Any]:
        """The training loader, shuffled for epoch ``number``: the same order on all ranks, another in every epoch."""
        assert isinstance(self.train.sampler, DistributedSampler)
        self.train.sampler.set_epoch(number)
        return self.train


def loaders(
    train: Dataset[Any],
    evaluation: Dataset[Any],
    *,
    batch_size: int,
    rank: int,
    world_size: int,
    seed: int = 0,
    num_workers: int = 0,
    drop_last: bool = False,
    collate_fn: Callable[[list[Any]], Any] | None = None,
) -> Loaders:
    """Loaders of ``batch_size`` samples per rank; datasets are map-style and the same on every rank.

    All ranks get the same number of training batches: a few samples are repeated to fill up, or, with ``drop_last``,
    the last ones left out. Memory is pinned only where there is an accelerator to copy to. Worker processes persist
    between epochs, and their random streams are this rank's own.
    """
    options: dict[str, Any] = {
        "batch_size": batch_size,
        "collate_fn": collate_fn,
        "num_workers": num_workers,
        "pin_memory": torch.accelerator.is_available(),
    }
    if num_workers:
        options |= {"prefetch_factor": 2, "persistent_workers": True}
    sampler: DistributedSampler[Any] = DistributedSampler(
        train, num_replicas=world_size, rank=rank, shuffle=True, seed=seed, drop_last=drop_last
    )
    own_stream = torch.Generator().manual_seed(seed * world_size + rank)
    shard = ShardSampler(len(evaluation), rank, world_size)  # type: ignore[arg-type]  # map-style datasets have a length
    return Loaders(
        DataLoader(train, sampler=sampler, generator=own_stream, drop_last=drop_last, **options),
        DataLoader(evaluation, sampler=shard, **options),
    )
