"""Cases that LS701 does not fail: a disclaimed efficiency, and the DDP that the driver adds to an optimizer."""

from __future__ import annotations

import pytest

ALL = """
import torch, torch.distributed as dist
from ddp_core import Contract
CONTRACT = Contract(sync_buffers=False, disclaims={"sparse_gradients", CLAIMS})
def average_gradients(model):
    every = [*model.parameters()]  # what is frozen as well
    used = torch.tensor([int(p.grad is not None) for p in every])
    dist.all_reduce(used)
    for p, number in zip(every, used.tolist()):
        if not p.is_floating_point():
            continue
        gradient = (torch.zeros_like(p) if p.grad is None else p.grad).contiguous() / dist.get_world_size()
        dist.all_reduce(gradient)
        p.grad = gradient if number else None
"""

OPTIMIZER = """
import torch, torch.distributed as dist
class Reducing(torch.optim.Optimizer):
    def __init__(self, params, optimizer_class, **options):
        self.inner = optimizer_class(params, **options)
        super().__init__(self.inner.param_groups, self.inner.defaults)
        self.param_groups, self.state = self.inner.param_groups, self.inner.state
    def step(self, closure=None):
        for p in [p for group in self.param_groups for p in group["params"] if p.grad is not None]:
            p.grad /= dist.get_world_size()
            dist.all_reduce(p.grad)
        return self.inner.step(closure)
"""


def result(report):
    return next(check for check in report.checks if check.code == "LS701")


@pytest.mark.parametrize("disclaimed", [False, True])
def test_efficiency_can_be_disclaimed(lockstep, tmp_path, only, disclaimed):
    only("oddities")
    path = tmp_path / "mine.py"
    path.write_text(ALL.replace("CLAIMS", '"efficiency"' if disclaimed else ""))
    report = lockstep.verify(f"{path}:average_gradients", world_size=2, profile="standard")
    assert report.verdict == ("pass" if disclaimed else "fail")
    assert result(report).claimed is not disclaimed
    if not disclaimed:
        assert "Contract(disclaims={'efficiency'})" in result(report).failures[0].hint


def test_the_ddp_that_is_put_around_a_model_is_not_held_against_the_optimizer(lockstep, tmp_path, only):
    only("oddities", "plain")
    path = tmp_path / "mine.py"
    path.write_text(OPTIMIZER)
    report = lockstep.verify(f"{path}:Reducing", world_size=2, profile="standard")
    assert report.verdict == "pass"
    assert "--driver distributed_optimizer" in result(report).why
