"""Strategies that are right if a loop calls them, by what it finds: driven without being told, on real ranks."""

from __future__ import annotations

import pytest

HEAD = """
import torch, torch.distributed as dist
from torch import nn
from ddp_core import Contract
CONTRACT = Contract(broadcasts_at_start=False, sync_buffers=False, disclaims={"unused_parameters", "branch_order"})
class Wrapper(nn.Module):
    def __init__(self, module):
        super().__init__()
        self.module, self.pending = module, []
    def forward(self, *inputs):
        return self.module(*inputs)
"""

BESIDE_A_BACKWARD = """
class Strategy(Wrapper):
    def __init__(self, module):
        super().__init__(module)
        for p in module.parameters():
            p.register_post_accumulate_grad_hook(self.start)
    def start(self, p):
        self.pending.append((dist.all_reduce(p.grad, async_op=True), p))
    def backward(self, loss):
        loss.backward()
    def synchronize(self):
        for work, p in self.pending:
            work.wait()
            p.grad /= dist.get_world_size()
        self.pending = []
"""

BY_THE_OPTIMIZER = """
class Strategy(Wrapper):
    def sync_gradients(self, optimizer):
        for group in optimizer.param_groups:
            for p in group["params"]:
                dist.all_reduce(p.grad)
                p.grad /= dist.get_world_size()
"""

WORLD_SIZE_FIRST = """
def average_gradients(world_size, model):
    for p in model.parameters():
        dist.all_reduce(p.grad)
        p.grad /= world_size
"""


@pytest.mark.parametrize(
    ("body", "name", "style"),
    [
        pytest.param(BESIDE_A_BACKWARD, "Strategy", "explicit", id="synchronize_beside_a_backward"),
        pytest.param(BY_THE_OPTIMIZER, "Strategy", "explicit", id="sync_gradients_of_an_optimizer"),
        pytest.param(WORLD_SIZE_FIRST, "average_gradients", "function", id="world_size_first"),
    ],
)
def test_it_is_driven_and_compared(lockstep, tmp_path, only, body, name, style):
    only("plain")
    path = tmp_path / "mine.py"
    path.write_text(HEAD + body)
    report = lockstep.verify(f"{path}:{name}", world_size=2)
    report.assert_pass()
    assert {scenario.driver for scenario in report.scenarios} == {style}
    (compared,) = [check.comparisons for check in report.checks if check.code == "LS201"]
    assert compared > 0
