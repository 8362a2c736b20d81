"""An optimizer that reduces gradients inside ``step()``, into its own shard: the loop cannot clip them before."""

from __future__ import annotations

from pathlib import Path

import pytest

ZERO_1 = (Path(__file__).parents[1] / "controls" / "scatters_into_its_shard.py").read_text()

# Only rank 0 replaces gradients by sums, inside step(): all ranks must follow what rank 0 alone observes.
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

# A hook on all optimizers, which is not visible on the model that wrap returns.
HOOK = """
import torch, torch.distributed as dist
from torch.optim.optimizer import register_optimizer_step_pre_hook
from ddp_core import Contract
CONTRACT = Contract(sync_buffers=False, disclaims={"unused_parameters", "sparse_gradients"})
def average(optimizer, args, kwargs):
    for group in optimizer.param_groups:
        for p in group["params"]:
            dist.all_reduce(p.grad)
            p.grad /= dist.get_world_size()
def wrap(model):
    for tensor in model.state_dict().values():
        dist.broadcast(tensor, src=0)
    register_optimizer_step_pre_hook(average)
    return model
"""


@pytest.mark.parametrize("strategy", [ZERO_1, SERVER, HOOK])
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
