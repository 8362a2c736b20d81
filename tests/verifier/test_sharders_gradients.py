"""A sharder's ``.grad`` may stay each rank's own: failures are reported for its results, and not for ``.grad``."""

from __future__ import annotations

import pytest

SHARDED = """
import math, torch, torch.distributed as dist
from torch import nn
from ddp_core import Contract
CONTRACT = Contract(sharded=True, disclaims={"sparse_gradients", "unused_parameters", "complex_parameters"})

class Sharded:
    def __init__(self, model, cls, parameters, **options):
        self.rank, self.size = dist.get_rank(), dist.get_world_size()
        self.all = [p for p in model.parameters() if p.requires_grad]
        numel = sum(p.numel() for p in self.all)
        self.length = -(-numel // self.size)
        self.shard = nn.Parameter(self.flat([p.data for p in self.all]).view(self.size, -1)[self.rank].clone())
        self.inner = cls([self.shard], **options)
        self.param_groups, self.state, self.defaults = self.inner.param_groups, self.inner.state, self.inner.defaults
    def flat(self, tensors):
        whole = torch.cat([t.reshape(-1) for t in tensors])
        return nn.functional.pad(whole, (0, self.length * self.size - whole.numel()))
    def zero_grad(self, set_to_none=True):
        self.shard.grad = None
        for p in self.all:
            p.grad = None
    def reduce(self):
        if self.shard.grad is None:
            mine = torch.empty_like(self.shard)
            whole = self.flat([p.grad for p in self.all])
            dist.reduce_scatter_tensor(mine, whole)
            self.shard.grad = mine / self.size
    def clip_grad_norm_(self, max_norm):
        self.reduce()
        square = self.shard.grad.double().square().sum()
        if FAULT != "clip":
            dist.all_reduce(square)
        norm = square.sqrt()
        self.shard.grad.mul_((max_norm / (norm + 1e-6)).clamp(max=1.0).to(self.shard.dtype))
        return norm
    def step(self):
        self.reduce()
        if FAULT == "sum":
            self.shard.grad *= self.size
        self.inner.step()
        whole = self.flat([p.data for p in self.all])
        if FAULT == "gather":
            whole.view(self.size, -1)[self.rank] = self.shard.data
        else:
            dist.all_gather_into_tensor(whole, self.shard.data)
        for p, new in zip(self.all, whole.split([p.numel() for p in self.all] + [whole.numel() - self.numel()])):
            p.data.copy_(new.view(p.shape))
    def numel(self):
        return sum(p.numel() for p in self.all)

class wrap(nn.Module):
    def __init__(self, module):
        super().__init__()
        self.module = module
        for tensor in module.state_dict().values():
            dist.broadcast(tensor, 0)
    def forward(self, *inputs):
        return self.module(*inputs)
    def wrap_optimizer(self, cls, parameters, **options):
        return Sharded(self.module, cls, parameters, **options)
"""


def causes(lockstep, tmp_path, fault):
    path = tmp_path / "mine.py"
    path.write_text(f"FAULT = {fault!r}\n{SHARDED}")
    report = lockstep.verify(f"{path}:wrap", world_size=2, profile="standard")
    return report, {f.cause: f for check in report.checks for f in check.failures if check.code in ("LS201", "LS202")}


@pytest.mark.parametrize(
    ("fault", "situations", "cause", "words"),
    [
        (None, ["plain", "clipping"], None, ""),
        ("clip", ["plain", "clipping"], "clipped_otherwise", "what is left of their mean once it is clipped"),
        ("gather", ["plain"], "not_synchronised", "weights were not seen to come out right"),
        ("sum", ["plain"], "update_scaled", ": the world size"),
    ],
)
def test_what_is_said_of_it(lockstep, tmp_path, only, fault, situations, cause, words):
    only(*situations)
    report, found = causes(lockstep, tmp_path, fault)
    if fault is None:
        return report.assert_pass()
    assert set(found) == {cause}, report.summary
    assert words in found[cause].explanation
    assert found[cause].confidence < 1
    if fault == "sum":
        assert "divide the sum over ranks by their number" in found[cause].hint
    return None
