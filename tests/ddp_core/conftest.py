"""Shared code of the situations: bodies that run on real ranks, inside ``wrap`` of a strategy file.

``same_as_one_process`` trains a wrapped replica and, on the same rank, a bare model on all ranks' data, in float64 and
with SGD with momentum.
"""

from __future__ import annotations

import textwrap

import pytest

HEAD = """
import copy, io, pickle, warnings
import torch, torch.distributed as dist
from torch import nn
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint
from ddp_core import Comm, DataParallel
from ddp_core.strategies import async_hook, bucketed, flat, hook, naive, strict
STRATEGIES = {strategies}
TINY = dict(bucket_cap_mb=0.0002, first_bucket_cap_mb=0.0001)

def options(strategy):
    return TINY if strategy is bucketed else {{}}

def data(rank, step=0, rows=3, width=4):
    return torch.randn(rows, width, generator=torch.Generator().manual_seed(100 * step + rank), dtype=torch.float64)

def same(mine, theirs, what):
    for (name, a), (_, b) in zip(mine.named_parameters(), theirs.named_parameters(), strict=True):
        assert (a.grad is None) == (b.grad is None), (what, name, a.grad, b.grad)
        for x, y in ((a, b), (a.grad, b.grad)):
            if x is not None and x.numel():
                x, y = (t.to_dense() if t.is_sparse else t for t in (x, y))
                assert (x - y).abs().max() <= 1e-12 * (1 + y.abs().max()), (what, name, x, y)

def same_as_one_process(build, loss, num_steps=3, set_to_none=True, wrap_options={{}}, backward=None):
    # build() -> model; loss(model, rank, step) -> scalar; backward(losses, wrapped or None)
    rank, world = dist.get_rank(), dist.get_world_size()
    for strategy in STRATEGIES:
        torch.manual_seed(5)
        single = build().double()
        torch.manual_seed(5 + rank)
        wrapped = strategy.wrap(build().double(), **options(strategy), **wrap_options)
        rule = dict(lr=0.1, momentum=0.5, weight_decay=0.1)
        optimizers = [torch.optim.SGD(m.parameters(), **rule) for m in (wrapped, single)]
        for step in range(num_steps):
            for optimizer in optimizers:
                optimizer.zero_grad(set_to_none=set_to_none)
            loss(wrapped, rank, step).backward()
            (sum(loss(single, r, step) for r in range(world)) / world).backward()
            same(wrapped.module, single, (strategy.__name__, step))
            for optimizer in optimizers:
                optimizer.step()
        same(wrapped.module, single, (strategy.__name__, "end"))

def raises(kind, said, action):
    try:
        action()
    except kind as error:
        assert said in str(error), str(error)
    else:
        raise AssertionError("nothing was raised")

def wrap(model):
    rank, world = dist.get_rank(), dist.get_world_size()
"""
ALL = "[async_hook, bucketed, flat, hook, naive]"


@pytest.fixture
def on_ranks(lockstep, tmp_path):
    """Run ``body`` on every rank; it must end without an exception."""

    def run(body, world_size=2, strategies=ALL):
        path = tmp_path / "body.py"
        head = HEAD.format(strategies=strategies)
        path.write_text(head + textwrap.indent(textwrap.dedent(body), "    ") + "\n    return naive.wrap(model)\n")
        check = "LS002" if world_size > 1 else "LS201"  # LS002 reads one scenario, which one rank does not have
        report = lockstep.verify(str(path), world_size=world_size, checks=(check,))
        details = [rank.detail for scenario in report.scenarios for rank in scenario.ranks if rank.detail]
        assert not details, details[0]
        report.assert_pass()

    return run
