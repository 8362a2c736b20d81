"""A layer that records the random numbers of each forward, and those that its backward uses."""

from __future__ import annotations

import pytest
import torch
from torch.utils.checkpoint import checkpoint

from verifier import noise


@pytest.fixture(autouse=True)
def nothing_told():
    noise.begin()
    yield
    noise.begin()


@pytest.mark.parametrize("reentrant", [False, True])
@pytest.mark.parametrize("preserve", [False, True])
def test_a_forward_that_is_run_again(reentrant, preserve):
    x, layer = torch.ones(2, requires_grad=True), noise.Noise()
    checkpoint(layer, x, use_reentrant=reentrant, preserve_rng_state=preserve).sum().backward()
    told = noise.told()
    assert len(told["forwards"]) == len(told["backwards"]) == 1
    assert (told["forwards"] == told["backwards"]) is preserve
    assert x.grad is not None
    assert x.grad.eq(1.0).all()


def test_it_changes_nothing_and_draws_anew_each_time():
    x, layer = torch.randn(3, requires_grad=True), noise.Noise()
    (layer(x) + layer(x)).sum().backward()
    told = noise.told()
    assert sorted(told["forwards"]) == sorted(told["backwards"])
    assert len(set(told["forwards"])) == 2
