"""Parameters that become their own shards (``p.data = shard``), and whose gradients are reduced in the backward itself.

Special here: our tags come too late for those, which is seen; and where nobody has declared shards, that is what is
told first, and not that replicas start unequal.
"""

from __future__ import annotations

import pytest

SHARDS = """
import torch, torch.distributed as dist
from types import MethodType
from torch import nn
from torch.nn import functional as F
from ddp_core import Contract

def gathered(shard, shape):
    full = shard.new_empty(shard.numel() * dist.get_world_size())
    dist.all_gather_into_tensor(full, shard.detach())
    return full[: shape.numel()].view(shape)

class Sharded(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, shard, shape):
        ctx.save_for_backward(x, shard)
        ctx.shape = shape
        return x @ gathered(shard, shape).t()
    @staticmethod
    def backward(ctx, out):
        x, shard = ctx.saved_tensors
        whole = (out.flatten(0, -2).t() @ x.flatten(0, -2)).flatten() / dist.get_world_size()
        part = torch.empty_like(shard)
        dist.reduce_scatter_tensor(part, F.pad(whole, (0, shard.numel() * dist.get_world_size() - whole.numel())))
        return out @ gathered(shard, ctx.shape), part, None

def averaged(p):
    p.grad.div_(dist.get_world_size())
    dist.all_reduce(p.grad)

class wrap(nn.Module):
    def __init__(self, module):
        super().__init__()
        self.module, world, rank, sharded = module, dist.get_world_size(), dist.get_rank(), set()
        for tensor in [*module.parameters(), *module.buffers()]:
            dist.broadcast(tensor.data, 0)
        for layer in module.modules():
            if isinstance(layer, nn.Linear) and layer.bias is not None:
                weight, shape = layer.weight, layer.weight.shape
                size = -(-weight.numel() // world)
                flat = F.pad(weight.data.flatten(), (0, size * world - weight.numel()))
                weight.data = flat[rank * size : (rank + 1) * size].clone()
                def forward(self, x, shape=shape):
                    return Sharded.apply(x, self.weight, shape) + self.bias
                layer.forward = MethodType(forward, layer)
                sharded.add(weight)
        for p in module.parameters():
            if p not in sharded and p.requires_grad:
                p.register_post_accumulate_grad_hook(averaged)
    def forward(self, *inputs):
        return self.module(*inputs)
"""
DECLARED = 'CONTRACT = Contract(sharded=True, sync_buffers=False, disclaims={"state_dict", "branch_order"})\n'


@pytest.fixture
def shards(tmp_path):
    def write(contract):
        path = tmp_path / "mine.py"
        path.write_text(SHARDS + contract)
        return f"{path}:wrap"

    return write


@pytest.mark.parametrize("situation", ["delayed", "large"])
def test_tags_that_come_too_late_are_no_error_of_the_strategys(lockstep, shards, only, situation):
    only(situation, "plain")  # where something is compared
    lockstep.verify(shards(DECLARED), world_size=2, profile="standard").assert_pass()


def test_shards_that_nobody_has_declared_are_called_so(lockstep, shards, only):
    only("different_start")
    report = lockstep.verify(shards(""), world_size=2, profile="standard")
    (start,) = [check for check in report.checks if check.code == "LS001"]
    assert start.verdict == "fail"
    assert {failure.cause for failure in start.failures} == {"undeclared_shards"}
    assert "Contract(sharded=True)" in start.failures[0].hint
    assert "and the strategy does not say that it shards" in report.summary
    only("different_start", "plain")
    lockstep.verify(shards(DECLARED), world_size=2, profile="standard").assert_pass()
