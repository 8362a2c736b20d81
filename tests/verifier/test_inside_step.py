"""An optimizer that reduces gradients inside ``step()``, into a shard of its own: a loop has nothing to clip before."""

from __future__ import annotations

import pytest

ZERO_1 = """
import torch, torch.distributed as dist
from ddp_core import Contract
CONTRACT = Contract(sharded=True, sync_buffers=False)
class Sharded:
    def __init__(self, model, momentum=0.5, lr=0.125):
        self.parameters, self.momentum, self.lr = [*model.parameters()], momentum, lr
        self.rank, self.size = dist.get_rank(), dist.get_world_size()
        self.shard = self.flat(self.parameters).chunk(self.size)[self.rank].clone()
        self.moved = torch.zeros_like(self.shard)
    def flat(self, tensors):
        flat = torch.cat([tensor.detach().flatten() for tensor in tensors])
        return torch.cat([flat, flat.new_zeros(-len(flat) % self.size)])
    def step(self):
        mine = torch.zeros_like(self.shard)
        dist.reduce_scatter(mine, [*self.flat(parameter.grad for parameter in self.parameters).chunk(self.size)])
        self.moved.mul_(self.momentum).add_(mine / self.size)
        self.shard -= self.lr * self.moved
        parts = [torch.zeros_like(self.shard) for _ in range(self.size)]
        dist.all_gather(parts, self.shard)
        sizes, whole = [parameter.numel() for parameter in self.parameters], torch.cat(parts)
        for parameter, part in zip(self.parameters, whole[: sum(sizes)].split(sizes)):
            parameter.data.copy_(part.view_as(parameter))
    def zero_grad(self, set_to_none=True):
        for parameter in self.parameters:
            parameter.grad = None
def wrap(model):
    for parameter in model.parameters():
        dist.broadcast(parameter.data, src=0)
    return model, Sharded(model)
"""

# The one that adds up is the only one that puts sums in gradients' place: what it alone sees, all have to go by.
SERVER = """
import torch, torch.distributed as dist
from ddp_core import Contract
CONTRACT = Contract(sharded=True, sync_buffers=False, disclaims={"unused_parameters", "sparse_gradients"})
class Server(torch.optim.SGD):
    @torch.no_grad()
    def step(self, closure=None):
        every = [p for group in self.param_groups for p in group["params"]]
        others = [torch.empty_like(p) for p in every]
        for rank in range(1, dist.get_world_size()):
            ours = dist.get_rank() == rank
            ops = [dist.P2POp(dist.isend, p.grad, 0) if ours else dist.P2POp(dist.irecv, other, rank)
                   for p, other in zip(every, others) if ours or not dist.get_rank()]
            for work in dist.batch_isend_irecv(ops) if ops else []:
                work.wait()
            if not dist.get_rank():
                for p, other in zip(every, others):
                    p.grad = p.grad + other
        if not dist.get_rank():
            for p in every:
                p.grad = p.grad / dist.get_world_size()
            super().step()
        for p in every:
            dist.broadcast(p, src=0)
def wrap(model, optimizer):
    for tensor in model.state_dict().values():
        dist.broadcast(tensor, src=0)
    return model, Server(optimizer.param_groups, **optimizer.defaults)
"""


@pytest.mark.parametrize("strategy", [ZERO_1, SERVER])
@pytest.mark.parametrize("situation", ["realistic", "clipping"])
def test_what_is_reduced_into_a_shard_is_not_clipped_before(lockstep, tmp_path, only, situation, strategy):
    (tmp_path / "mine.py").write_text(strategy)
    only(situation)
    report = lockstep.verify(
        f"{tmp_path / 'mine.py'}:wrap", world_size=2, profile="thorough", checks=("LS201", "LS301")
    )
    assert [failure for check in report.checks for failure in check.failures] == []
    check = next(check for check in report.checks if check.code == "LS201")
    if situation == "clipping":
        assert "no clip_grad_norm_() of its own" in check.why
