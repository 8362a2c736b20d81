"""Code paths for one kind of tensor (by dtype, layout, size), together with an act of the loop or a process group.

Special here: each strategy's path for one kind of tensor forgets one thing; it is run with and without the mistake, in
the one situation that has both conditions. Mistakes of clipping and of unused halves are in ``test_halves``.
"""

from __future__ import annotations

import pytest

HEAD = """
import os
from contextlib import contextmanager
import torch, torch.distributed as dist
from torch import nn
from ddp_core import Contract
CONTRACT = Contract(sync_buffers=False, disclaims={"dropped_batches"})
NARROW = (torch.float16, torch.bfloat16)
def used_of(parameters, extra=()):
    used = torch.tensor([int(p.grad is not None or p in extra) for p in parameters])
    dist.all_reduce(used)
    return used.tolist()
def mean_of(p, group=None, extra=None):
    gradient = torch.zeros_like(p) if p.grad is None else p.grad
    gradient = (gradient.to_dense() if gradient.is_sparse else gradient).contiguous()
    gradient = gradient if extra is None else gradient + extra
    dist.all_reduce(gradient, group=group)
    return gradient / dist.get_world_size(group)
class Replica(nn.Module):
    def __init__(self, module):
        super().__init__()
        self.module, self.all = module, [p for p in module.parameters() if p.requires_grad]
        for tensor in module.state_dict().values():
            self.send(tensor)
    def send(self, tensor):
        dist.broadcast(tensor, src=0)
    def forward(self, *inputs):
        return self.module(*inputs)
"""

IN_A_GROUP = """
def average_gradients(model, group=None):
    for p in model.parameters():
        if p.grad is not None:
            p.grad = mean_of(p, None if not RIGHT and KIND else group)
"""

NODES = """
class wrap(Replica):
    def __init__(self, module):
        super().__init__(module)
        n, size, rank = int(os.environ["LOCAL_WORLD_SIZE"]), dist.get_world_size(), dist.get_rank()
        inside = [dist.new_group([*range(first, first + n)]) for first in range(0, size, n)]
        across = [dist.new_group([*range(first, size, n)]) for first in range(n)]
        self.groups = inside[rank // n], across[rank % n]
    def sync_gradients(self):
        self.bad = torch.tensor([int(not all(p.grad.isfinite().all() for p in self.all if not p.grad.is_sparse))])
        for p in self.all:
            nodes = 1 if not RIGHT and SPARSE and p.grad.is_sparse else 2
            for group in self.groups[:nodes]:
                p.grad = mean_of(p, group)
        for group in self.groups[: 1 if not RIGHT and not SPARSE else 2]:
            dist.all_reduce(self.bad, group=group)
    def step(self, optimizer):
        if not self.bad:
            optimizer.step()
"""

MASTERS = """
class wrap(Replica):
    def sync_gradients(self):
        for p, number in zip(self.all, used_of(self.all)):
            if number:
                p.grad = mean_of(p)
    def wrap_optimizer(self, cls, parameters, **options):
        parameters = list(parameters)
        masters = [(p, p.detach().float().flatten().requires_grad_()) for p in parameters if p.dtype in NARROW]
        class Masters(cls):
            @torch.no_grad()
            def step(self, closure=None):
                for p, master in masters:
                    master.grad = None if p.grad is None else p.grad.float().flatten()
                super().step()
                for p, master in masters:
                    if RIGHT:
                        p.copy_(master.view(p.shape))
                    else:
                        p.data.flatten().copy_(master)
            def zero_grad(self, set_to_none=True):
                super().zero_grad(set_to_none)
                for p, _ in masters:
                    p.grad = None
        return Masters([p for p in parameters if p.dtype not in NARROW] + [m for _, m in masters], **options)
"""

MAIN_GRADIENTS = """
class wrap(Replica):
    def __init__(self, module):
        super().__init__(module)
        self.quiet, self.main = False, {}
        for p in self.all:
            p.register_post_accumulate_grad_hook(self.keep)
    @contextmanager
    def no_sync(self):
        self.quiet = True
        yield
        self.quiet = False
    def keep(self, p):
        if self.quiet and p.dtype in NARROW:
            self.main[p] = self.main.get(p, 0) + p.grad
            p.grad = None
    def sync_gradients(self):
        main, self.main = self.main, {}
        for p, number in zip(self.all, used_of(self.all, main if RIGHT else ())):
            if number:
                p.grad = mean_of(p, extra=main.get(p, torch.zeros_like(p)))
"""

LEARNED = """
class wrap(Replica):  # asks in every one of the first ten steps
    steps, learning_steps = 0, 10
    def sync_gradients(self):
        self.steps += 1
        if RIGHT or self.steps <= self.learning_steps:
            self.used = used_of(self.all)
        for p, number in zip(self.all, self.used):
            if number:
                p.grad = mean_of(p)
"""

IN_PIECES = """
class wrap(Replica):
    def send(self, tensor):
        piece = 1 << 20
        flat = tensor.contiguous().flatten()
        number = max(flat.numel() // piece, 1) + (1 if RIGHT else 0)
        for place in range(number):
            dist.broadcast(flat[place * piece : (place + 1) * piece], src=0)
        tensor.copy_(flat.view(tensor.shape))
    def sync_gradients(self):
        for p in self.all:
            p.grad = mean_of(p)
"""


def in_a_group(kind):
    return IN_A_GROUP.replace("KIND", kind)


@pytest.mark.parametrize("right", [True, False])
@pytest.mark.parametrize(
    ("body", "name", "situation", "code", "cause"),
    [
        pytest.param(
            in_a_group("not p.is_contiguous()"),
            *("average_gradients", "subgroup_strided", "LS201", "reduced_over_the_job"),
            id="strided_in_a_group",
        ),
        pytest.param(
            in_a_group("p.dtype in NARROW"),
            *("average_gradients", "subgroup_dtypes", "LS201", "reduced_over_the_job"),
            id="halves_in_a_group",
        ),
        pytest.param(
            in_a_group("p.is_complex()"),
            *("average_gradients", "subgroup_complex", "LS201", "reduced_over_the_job"),
            id="complex_in_a_group",
        ),
        pytest.param(
            NODES.replace("SPARSE", "True"),
            *("wrap", "nodes_sparse", "LS201", "not_synchronised"),
            id="sparse_within_a_node",
        ),
        pytest.param(
            NODES.replace("SPARSE", "False"),
            *("wrap", "nodes_overflow", "LS101", "replicas_diverged"),
            id="overflow_within_a_node",
        ),
        pytest.param(MASTERS, "wrap", "halves_strided", "LS202", "not_stepped", id="views_of_copies"),
        pytest.param(
            MAIN_GRADIENTS,
            *("wrap", "halves_unused_accumulated", "LS201", "missing_gradient"),
            id="what_earlier_micro_batches_alone_used",
        ),
        pytest.param(LEARNED, "wrap", "unused_later", "LS101", "replicas_diverged", id="used_in_the_first_steps"),
        pytest.param(IN_PIECES, "wrap", "large_start", "LS001", "no_initial_broadcast", id="the_last_piece"),
    ],
)
def test_where_a_path_meets_a_loop_it_is_told(lockstep, tmp_path, only, body, name, situation, code, cause, right):
    only(situation)
    path = tmp_path / "mine.py"
    path.write_text(f"{HEAD}RIGHT = {right}\n{body}")
    report = lockstep.verify(f"{path}:{name}", world_size=2, profile="standard")  # chosen by its text
    check = next(check for check in report.checks if check.code == code)
    assert check.verdict == ("pass" if right else "fail"), check
    assert report.verdict == ("pass" if right else "fail"), report.summary
    causes = {failure.cause for failure in check.failures}
    assert not causes if right else cause in causes
