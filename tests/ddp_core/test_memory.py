"""A strategy's memory, over all living tensors; on ranks without an observer, whose shadow copies would count too."""

from __future__ import annotations

import gc

import pytest
import torch
from torch import nn

from benchmarks.ranks import on_ranks
from ddp_core.strategies import async_hook, bucketed, naive

STRATEGIES = {s.__name__.rpartition(".")[2]: s for s in (async_hook, bucketed, naive)}


def alive() -> int:
    """Bytes of the storages of all tensors, each counted once."""
    gc.collect()
    tensors = [item for item in gc.get_objects() if isinstance(item, torch.Tensor)]
    return sum({t.untyped_storage().data_ptr(): t.untyped_storage().nbytes() for t in tensors}.values())


def copies(name: str, options: dict) -> float:
    """Memory after three steps beyond parameters and inputs, in units of the gradients' size."""
    inner, inputs = nn.Sequential(*[nn.Linear(64, 64) for _ in range(6)]), torch.ones(2, 64)
    size, before = sum(p.numel() * p.element_size() for p in inner.parameters()), alive()
    wrapped = STRATEGIES[name].wrap(inner, **options)
    for _ in range(3):  # the second adopts rank 0's order
        wrapped.zero_grad()
        wrapped(inputs).sum().backward()
    return (alive() - before) / size


CASES = [
    ("naive", {}, 1.0),
    ("async_hook", {}, 1.0),
    ("bucketed", {"bucket_cap_mb": 0.03}, 1.0),  # gradients are views: no copy beyond the gradients themselves
    ("bucketed", {"bucket_cap_mb": 0.03, "gradient_as_bucket_view": False}, 2.0),
]


def of_all_cases() -> list[float]:
    return [copies(name, options) for name, options, _ in CASES]


@pytest.fixture(scope="module")
def measured() -> list[float]:
    """One start of the ranks for all cases: starting takes a hundred times as long as measuring."""
    return on_ranks(2, of_all_cases)


@pytest.mark.parametrize("case", range(len(CASES)), ids=lambda case: f"{CASES[case][0]}-{CASES[case][1]}")
def test_at_most_one_copy_of_the_gradients_and_none_with_views(measured, case):
    assert measured[case] <= CASES[case][2] + 0.02
