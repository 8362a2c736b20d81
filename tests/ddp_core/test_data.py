"""Shards and loaders: properties for every number of samples and ranks, and the options of a loader."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.utils.data import TensorDataset

from ddp_core.data import ShardSampler, contiguous_shard, loaders


@given(st.integers(0, 500), st.integers(1, 40))
def test_shards_are_disjoint_complete_in_order_and_even(num_samples, world_size):
    shards = [contiguous_shard(num_samples, rank, world_size) for rank in range(world_size)]
    assert [index for shard in shards for index in shard] == list(range(num_samples))
    sizes = {len(shard) for shard in shards}
    assert max(sizes) - min(sizes) <= 1
    assert [list(ShardSampler(num_samples, rank, world_size)) for rank in range(world_size)] == [
        list(s) for s in shards
    ]


@pytest.mark.parametrize(("num_samples", "rank", "world_size"), [(10, 4, 4), (10, -1, 4), (-1, 0, 4), (10, 0, 0)])
def test_impossible_shards_are_refused(num_samples, rank, world_size):
    with pytest.raises(ValueError, match=f"rank {rank} of {world_size}"):
        contiguous_shard(num_samples, rank, world_size)


def samples(loader):
    return [int(sample) for (batch,) in loader for sample in batch]


def everyones(num_train, num_eval, world_size, **options):
    train, evaluation = TensorDataset(torch.arange(num_train)), TensorDataset(torch.arange(num_eval))
    return [
        loaders(train, evaluation, batch_size=3, rank=rank, world_size=world_size, **options)
        for rank in range(world_size)
    ]


@given(st.integers(1, 60), st.integers(0, 60), st.integers(1, 6), st.integers(0, 3))
def test_every_rank_trains_equally_often_and_every_sample_is_seen(num_train, num_eval, world_size, epoch):
    ranks = everyones(num_train, num_eval, world_size, seed=7)
    seen = [samples(rank.epoch(epoch)) for rank in ranks]
    assert len({len(each) for each in seen}) == 1
    assert len({len(rank.train) for rank in ranks}) == 1
    assert {sample for each in seen for sample in each} == set(range(num_train))
    assert sum(map(len, seen)) == -(-num_train // world_size) * world_size
    assert [sample for rank in ranks for sample in samples(rank.evaluation)] == list(range(num_eval))


def test_with_drop_last_no_sample_is_trained_on_twice():
    seen = [sample for rank in everyones(20, 1, 3, drop_last=True) for sample in samples(rank.epoch(0))]
    assert len(seen) == len(set(seen)) == 18


def test_epochs_are_reshuffled_alike_on_all_ranks_and_repeatable():
    (rank,) = everyones(50, 1, 1)
    first, second, again = (samples(rank.epoch(number)) for number in (0, 1, 0))
    assert first == again
    assert first != second
    assert sorted(first) == sorted(second) == list(range(50))


def test_workers_bring_their_own_options_and_streams():
    (plain,) = everyones(8, 8, 1)
    assert (plain.train.num_workers, plain.train.prefetch_factor, plain.train.persistent_workers) == (0, None, False)
    assert plain.train.pin_memory == torch.accelerator.is_available()
    two = everyones(8, 8, 2, num_workers=1)
    assert (two[0].train.prefetch_factor, two[0].train.persistent_workers) == (2, True)
    streams = {int(torch.empty((), dtype=torch.int64).random_(generator=rank.train.generator)) for rank in two}
    assert len(streams) == 2


def test_worker_processes_see_the_new_epoch():
    (rank,) = everyones(30, 4, 1, num_workers=1)
    first, second = samples(rank.epoch(0)), samples(rank.epoch(1))
    assert first != second
    assert sorted(second) == list(range(30))
