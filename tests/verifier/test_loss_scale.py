"""Gradients divided before backward and summed afterwards are the mean, wherever before the model they are divided."""

from __future__ import annotations

import pytest

HEAD = """
import torch, torch.distributed as dist

class Base(torch.nn.Module):
    def __init__(self, module):
        super().__init__()
        self.module = module
        for tensor in module.state_dict().values():
            whole = tensor.contiguous()
            dist.broadcast(whole, 0)
            tensor.copy_(whole)

    def forward(self, *inputs):
        for buffer in self.module.buffers():
            dist.broadcast(buffer, 0)
        return self.divided(self.module(*inputs))

    def sync_gradients(self):
        for p in self.module.parameters():
            used = torch.tensor(int(p.grad is not None))
            dist.all_reduce(used)
            if used:
                p.grad = torch.zeros_like(p) if p.grad is None else p.grad.contiguous()
                dist.all_reduce(p.grad)
"""

BY_A_HOOK = """
class wrap(Base):
    def divided(self, output):
        if output.requires_grad:
            output.register_hook(lambda gradient: gradient / SHARES)
        return output
"""

BY_A_NODE = """
class Divided(torch.autograd.Function):
    @staticmethod
    def forward(ctx, output):
        return output.view_as(output)

    @staticmethod
    def backward(ctx, gradient):
        return gradient / SHARES

class wrap(Base):
    def divided(self, output):
        return Divided.apply(output)
"""

RIGHT = "\nSHARES = dist.get_world_size()\n"
TWICE = "\nSHARES = dist.get_world_size() ** 2\n"
BY_ITS_RANK = "\nSHARES = dist.get_world_size() * (1 + dist.get_rank())\n"


@pytest.fixture
def verify(lockstep, tmp_path):
    def run(body, **asked):
        path = tmp_path / "mine.py"
        path.write_text(HEAD + body)
        return lockstep.verify(f"{path}:wrap", **asked)

    return run


@pytest.mark.usefixtures("in_short")
@pytest.mark.parametrize("world_size", [2, 3])
@pytest.mark.parametrize("body", [BY_A_HOOK, BY_A_NODE], ids=["by_a_hook", "by_a_node"])
def test_divided_on_the_way_into_the_model(verify, body, world_size):
    verify(body + RIGHT, world_size=world_size, workloads=["exact", "branches", "layers"]).assert_pass()


@pytest.mark.parametrize("body", [BY_A_HOOK, BY_A_NODE], ids=["by_a_hook", "by_a_node"])
@pytest.mark.parametrize("shares", [TWICE, BY_ITS_RANK], ids=["twice", "by_its_rank"])
def test_divided_wrongly(verify, body, shares):
    report = verify(body + shares, world_size=2, profile="quick")
    (gradients,) = [check for check in report.checks if check.code == "LS201"]
    assert gradients.verdict == "fail"


IN_FLOAT16 = """
from ddp_core import Contract
CONTRACT = Contract(lossy="float16")
SCALE = 2.0 ** 4

class wrap(Base):
    def divided(self, output):
        return output

    def backward(self, loss):
        (loss * SCALE).backward()

    def sync_gradients(self):
        for p in self.module.parameters():
            narrow = (p.grad / dist.get_world_size()).to(torch.float16)
            dist.all_reduce(narrow)
            p.grad = narrow.to(p.grad.dtype) / SCALE
"""


def test_gradients_that_float16_just_holds_are_not_judged_if_they_are_scaled(verify):
    """Scaled gradients are infinite there, and the scaler may skip the step; unscaled they are correct."""
    (gradients,) = [c for c in verify(IN_FLOAT16, world_size=2, workloads=["loud"]).checks if c.code == "LS201"]
    assert not gradients.claimed
    assert "multiplies the loss" in gradients.why
    verify(IN_FLOAT16.replace("2.0 ** 4", "1.0"), world_size=2, workloads=["loud"]).assert_pass()
