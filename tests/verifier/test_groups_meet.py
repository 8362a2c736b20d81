"""Mistakes that show only where a strategy's own process group meets another condition: micro-batches, sparse
gradients, unused parameters; and clipping that depends on the kind of optimizer. Each is compared with a correct twin.

Special here: as in ``test_conditions_meet_again``. With two ranks a group has one rank, and nothing has to be sent.
"""

from __future__ import annotations

import pytest

HEAD = """
import torch, torch.distributed as dist
from torch import nn
class wrap(nn.Module):
    def __init__(self, module, process_group=None):
        super().__init__()
        self.module, self.group, self.num_ranks = module, process_group, dist.get_world_size(process_group)
        self.root = dist.get_process_group_ranks(process_group or dist.group.WORLD)[0]
        for tensor in [*module.parameters(), *module.buffers()]:
            whole = tensor.detach().contiguous()
            dist.broadcast(whole, src=self.root, group=process_group)
            tensor.data.copy_(whole)
    def forward(self, *inputs):
        for buffer in self.module.buffers():
            dist.broadcast(buffer, src=self.root, group=self.group)
        return self.module(*inputs)
    def used(self, group):
        every = [p for p in self.module.parameters() if p.requires_grad]
        flags = torch.tensor([int(p.grad is not None) for p in every])
        dist.all_reduce(flags, group=group)
        return [p for p, number in zip(every, flags.tolist()) if number]
    def mean(self, gradient):
        gradient = gradient.to_dense() if gradient.is_sparse else gradient.contiguous()
        dist.all_reduce(gradient, group=self.group)
        return gradient / self.num_ranks
    def sync_gradients(self):
        for p in self.used(self.group):
            p.grad = self.mean(torch.zeros_like(p) if p.grad is None else p.grad)
"""

ALONE = """
class wrap(wrap):
    def __init__(self, module, process_group=None):
        super().__init__(module, process_group)
        self.total = {}
    def backward(self, loss):
        loss.backward()
        for p in self.used(self.group):
            gradient, p.grad = torch.zeros_like(p) if p.grad is None else p.grad, None
            reduced = self.mean(gradient) if self.num_ranks > 1 or RIGHT else self.total.get(p, gradient)
            self.total[p] = self.total.get(p, 0) + reduced
    def sync_gradients(self):
        for p, total in self.total.items():
            p.grad = total
        self.total = {}
    def zero_grad_buffer(self):
        self.total = {}
"""

SPARSE = """
class wrap(wrap):
    def mean(self, gradient):
        if not gradient.is_sparse:
            return super().mean(gradient)
        gradient, group = gradient.coalesce(), self.group if RIGHT else None
        parts = [None] * dist.get_world_size(group)
        dist.all_gather_object(parts, (gradient.indices(), gradient.values()), group=group)
        places, values = (torch.cat(of, dim) for of, dim in zip(zip(*parts), (1, 0)))
        return torch.sparse_coo_tensor(places, values / len(parts), gradient.shape).coalesce()
"""

UNUSED = """
class wrap(wrap):
    def sync_gradients(self):
        for p in self.used(self.group):
            mine = torch.zeros_like(p) if p.grad is None else p.grad
            # "the mean of those that have used it", and not of the group
            number = torch.tensor(float(p.grad is not None))
            dist.all_reduce(number, group=self.group)
            p.grad = self.mean(mine) * (1 if RIGHT else self.num_ranks / number)
"""

KINDS = """
class wrap(wrap):
    def wrap_optimizer(self, kind, parameters, **options):
        self.kind = kind
        return kind(parameters, **options)
    def clip_grad_norm_(self, max_norm):
        if self.kind is torch.optim.SGD or RIGHT:  # "the fused one clips by itself"
            return nn.utils.clip_grad_norm_(self.module.parameters(), max_norm)
        return torch.zeros(())
"""


@pytest.mark.parametrize("right", [True, False])
@pytest.mark.parametrize(
    ("body", "situation", "world_size"),
    [
        pytest.param(ALONE, "subgroup_accumulated", 2, id="alone_in_its_group"),
        pytest.param(SPARSE, "subgroup_sparse", 2, id="sparse_over_the_job"),
        pytest.param(UNUSED, "subgroup_unused", 3, id="by_who_has_used_it"),
        pytest.param(KINDS, "clipping_groups", 2, id="clips_for_one_kind"),
    ],
)
def test_where_they_meet(lockstep, tmp_path, only, body, situation, world_size, right):
    only(situation)
    path = tmp_path / "mine.py"
    path.write_text(f"RIGHT = {right}\n{HEAD}{body}")
    report = lockstep.verify(f"{path}:wrap", world_size=world_size, profile="standard")
    check = next(check for check in report.checks if check.code == "LS201")
    assert check.verdict == report.verdict == ("pass" if right else "fail"), check


# Owners are found by the job's ranks, although the optimizer was given a group.
OWNERS = """
import torch, torch.distributed as dist
from ddp_core import Contract
CONTRACT = Contract(disclaims={"state_dict"})
class Sharded(torch.optim.Optimizer):
    def __init__(self, parameters, optimizer_class, process_group=None, **options):
        super().__init__(parameters, options)
        self.group, self.all = process_group, [p for group in self.param_groups for p in group["params"]]
        rank = dist.get_rank(process_group if RIGHT else None)
        self.owners = [place % dist.get_world_size(process_group) for place in range(len(self.all))]
        mine = [p for p, owner in zip(self.all, self.owners) if owner == rank]
        self.inner = optimizer_class(mine or [torch.zeros(1)], **options)
    @torch.no_grad()
    def step(self, closure=None):
        self.inner.step()
        for p, owner in zip(self.all, self.owners):
            dist.broadcast(p, group=self.group, group_src=owner)
"""


@pytest.mark.parametrize("right", [True, False])
def test_an_optimizer_is_given_a_group_as_well(lockstep, tmp_path, only, right):
    only("subgroup")
    path = tmp_path / "mine.py"
    path.write_text(f"RIGHT = {right}\n{OWNERS}")
    report = lockstep.verify(f"{path}:Sharded", world_size=4, profile="standard")
    check = next(check for check in report.checks if check.code == "LS201")
    assert check.verdict == report.verdict == ("pass" if right else "fail"), check


@pytest.mark.parametrize("world_size", [2, 3])
def test_a_parameter_that_nobody_in_the_group_has_used_may_be_none(lockstep, tmp_path, only, world_size):
    only("subgroup_unused")
    path = tmp_path / "mine.py"
    path.write_text(HEAD)
    report = lockstep.verify(f"{path}:wrap", world_size=world_size, profile="standard")
    report.assert_pass()
    (compared,) = [check.comparisons for check in report.checks if check.code == "LS201"]
    assert compared > 0
