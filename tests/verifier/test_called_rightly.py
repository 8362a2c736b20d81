"""Strategies that are correct if the loop calls the methods that it finds: driven without --driver, on real ranks."""

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


BY_GROUPS = """
def all_reduce_gradients(param_groups):
    for group in param_groups:
        for p in group["params"]:
            dist.all_reduce(p.grad, op=dist.ReduceOp.SUM)
            p.grad /= dist.get_world_size()
"""

SERVED = """
CONTRACT = Contract(sharded=True, sync_buffers=False)
class Strategy:  # rank 0 steps as soon as gradients are averaged, and step() hands out what came of it
    def __init__(self, model):
        self.model, self.optimizer = model, None
        for value in model.state_dict().values():
            dist.broadcast(value, 0)
    def __call__(self, *inputs, **named):
        return self.model(*inputs, **named)
    def backward(self, loss):
        loss.backward()
        for p in self.model.parameters():
            dist.all_reduce(p.grad)
            p.grad /= dist.get_world_size()
        if dist.get_rank() == 0:
            self.optimizer.step()
    def step(self):
        for p in self.model.parameters():
            dist.broadcast(p.data, 0)
"""

REDUCED_BY_THREADS = """
from concurrent.futures import ThreadPoolExecutor
class Strategy(Wrapper):
    def __init__(self, module):
        super().__init__(module)
        self.pool, self.groups = ThreadPoolExecutor(8), {}
        for p in module.parameters():
            self.groups[p] = dist.new_group()
            if RIGHT:
                p.register_post_accumulate_grad_hook(lambda p: self.start(p, p.grad))
            else:
                p.register_hook(lambda gradient, p=p: self.start(p, gradient))
    def start(self, p, gradient):
        self.pending.append(self.pool.submit(self.reduce, p, gradient))
    def reduce(self, p, gradient):
        mean = gradient / dist.get_world_size()
        dist.all_reduce(mean, group=self.groups[p])
        p.grad.copy_(mean)  # which is not there yet, if the backward has not come to it
    def finish_gradient_synchronization(self):
        for future in self.pending:
            future.exception()  # and nobody looks at it
        self.pending = []
"""


def test_one_rank_that_steps_in_its_backward_leaves_a_dropped_batch_to_nobody(lockstep, tmp_path, only):
    """Ranks agree on whether weights have moved: a rank that continued alone would issue other collectives."""
    only("plain", "dropped_batch")
    path = tmp_path / "mine.py"
    path.write_text(HEAD + SERVED)
    report = lockstep.verify(f"{path}:Strategy", world_size=2, profile="standard")
    report.assert_pass()
    assert any("no batch can be dropped" in reason for _, reason in report.left_out())


@pytest.mark.parametrize("right", [True, False])
def test_what_a_thread_does_before_the_backward_goes_on_is_seen(lockstep, tmp_path, only, right):
    only("plain", "delayed")
    path = tmp_path / "mine.py"
    path.write_text(f"{HEAD}\nRIGHT = {right}\n{REDUCED_BY_THREADS}")
    report = lockstep.verify(f"{path}:Strategy", world_size=2, profile="standard")
    if right:
        return report.assert_pass()
    found = {failure.scenario for check in report.checks for failure in check.failures if check.code == "LS201"}
    assert "delayed" in found, report.summary
    return None


@pytest.mark.parametrize(
    ("body", "name", "style"),
    [
        pytest.param(BESIDE_A_BACKWARD, "Strategy", "explicit", id="synchronize_beside_a_backward"),
        pytest.param(BY_THE_OPTIMIZER, "Strategy", "explicit", id="sync_gradients_of_an_optimizer"),
        pytest.param(BY_GROUPS, "all_reduce_gradients", "function", id="groups_of_parameters"),
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


BESIDE_WRAP = """
from torch.nn.parallel import DistributedDataParallel
class Sharded(torch.distributed.optim.ZeroRedundancyOptimizer):
    def step(self, closure=None):
        return super().step(closure) if RIGHT else None
def wrap(model):
    return DistributedDataParallel(model, find_unused_parameters=True)
def wrap_optimizer(cls, parameters, **options):
    return Sharded(parameters, cls, **options)
"""


@pytest.mark.parametrize("right", [True, False])
def test_an_optimizer_that_is_made_beside_wrap_is_the_one_that_steps(lockstep, tmp_path, only, right):
    only("plain")
    path = tmp_path / "mine.py"
    path.write_text(f"import torch.distributed.optim\n{HEAD}\nRIGHT = {right}\n{BESIDE_WRAP}")
    report = lockstep.verify(str(path), world_size=2)
    assert (report.verdict, report.scenarios[0].driver) == ("pass" if right else "fail", "optimizer_wrapper")
