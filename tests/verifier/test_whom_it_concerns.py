"""Mistakes that show in situations of images, nodes, micro-batches and imports, each with and without the mistake.

Special here: one situation is run; for a correct strategy, too, it must have made comparisons. Most of these situations
are in ``standard`` only for strategies that they concern, which ``test_texts`` tests.
"""

from __future__ import annotations

import pytest

from verifier.report.model import Report

HEAD = """
import torch, torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from ddp_core import Contract
"""

# BatchNorm2d over all ranks; the wrong one ignores pixels: it treats the input as rows and channels only.
SYNCHRONISED = """
class OverRanks(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        x = x.clone()
        dist.all_reduce(x)
        return x
    @staticmethod
    def backward(ctx, gradient):
        gradient = gradient.clone()
        dist.all_reduce(gradient)
        return gradient
class SyncNorm(nn.BatchNorm2d):
    def forward(self, x):
        if not self.training:
            return super().forward(x)
        rows = (x.movedim(1, -1) if RIGHT else x).reshape(-1, self.num_features)
        num = len(rows) * dist.get_world_size()
        mean = OverRanks.apply(rows.sum(0)) / num
        variance = OverRanks.apply((rows - mean).square().sum(0)) / num
        with torch.no_grad():
            self.running_mean.lerp_(mean, self.momentum)
            self.running_var.lerp_(variance * num / (num - 1), self.momentum)
            self.num_batches_tracked += 1
        normal = (rows - mean) / (variance + self.eps).sqrt() * self.weight + self.bias
        return normal.view(len(x), *x.shape[2:], -1).movedim(-1, 1) if RIGHT else normal.view_as(x)
def wrap(model):
    for module in model.modules():
        if type(module) is nn.BatchNorm2d:
            module.__class__ = SyncNorm
    return DistributedDataParallel(model)
"""

# Statistics of a node's first rank in place of rank 0's.
OF_THE_NODE = """
import os
class wrap(DistributedDataParallel):
    def __init__(self, model):
        super().__init__(model, broadcast_buffers=False)
        here = dist.get_world_size() if RIGHT else int(os.environ["LOCAL_WORLD_SIZE"])
        starts = range(0, dist.get_world_size(), here)
        groups = {start: dist.new_group(list(range(start, start + here))) for start in starts}
        self.root = dist.get_rank() // here * here
        self.group = groups[self.root]
    def forward(self, *inputs):
        for buffer in self.module.buffers():
            dist.broadcast(buffer, self.root, group=self.group)
        return super().forward(*inputs)
"""

REAL_ACCUMULATORS = """
class wrap(nn.Module):
    def __init__(self, model):
        super().__init__()
        self.module, self.kept = model, {}
        for tensor in model.state_dict().values():
            dist.broadcast(tensor, src=0)
    def forward(self, *inputs):
        return self.module(*inputs)
    def backward(self, loss):
        loss.backward()
        for parameter in self.module.parameters():
            gradient, parameter.grad = parameter.grad, None
            kept = gradient if RIGHT or parameter not in self.kept else gradient.real.to(gradient.dtype)
            self.kept[parameter] = kept + self.kept.get(parameter, 0)
    def sync_gradients(self):
        for parameter, kept in self.kept.items():
            dist.all_reduce(kept)
            parameter.grad = kept / dist.get_world_size()
        self.kept = {}
"""

# Decoupled decay belongs to a step. If it is applied where gradients are accumulated, it acts once per micro-batch.
DECAYS = """
class wrap(DistributedDataParallel):
    def wrap_optimizer(self, cls, parameters, **options):
        class Decaying(cls):
            @torch.no_grad()
            def decay(self):
                for group in self.param_groups:
                    for parameter in group["params"]:
                        parameter.mul_(1 - group["lr"] * group["weight_decay"])
            def backward(self, loss):
                loss.backward()
                if not RIGHT:
                    self.decay()
            def step(self, closure=None):
                if RIGHT:
                    self.decay()
                decays = [group["weight_decay"] for group in self.param_groups]
                for group in self.param_groups:
                    group["weight_decay"] = 0.0
                super().step(closure)
                for group, decay in zip(self.param_groups, decays):
                    group["weight_decay"] = decay
        return Decaying(parameters, **options)
"""

SIZE_ON_IMPORT = """
contract = Contract(sync_buffers=False, broadcasts_at_start=False)
WORLD_SIZE = dist.get_world_size() if dist.is_initialized() else 1
def average_gradients(model):
    for parameter in model.parameters():
        dist.all_reduce(parameter.grad)
        parameter.grad /= dist.get_world_size() if RIGHT else WORLD_SIZE
"""

# A skipped step leaves its gradients behind, and the next step is skipped because of them.
LEFT_BEHIND = """
class wrap(nn.Module):
    contract = Contract(disclaims={"dropped_batches", "loose_forwards"})
    def __init__(self, model):
        super().__init__()
        self.module, self.optimizer, self.kept = DistributedDataParallel(model), None, {}
    def forward(self, *inputs):
        return self.module(*inputs)
    def backward(self, loss):
        loss.backward()
        for parameter in self.module.parameters():
            self.kept[parameter] = parameter.grad.clone() + self.kept.get(parameter, 0)
            parameter.grad = None
    def step(self):
        finite = all(gradient.isfinite().all() for gradient in self.kept.values())
        for parameter, gradient in self.kept.items():
            parameter.grad = gradient
        if finite:
            self.optimizer.step()
        if finite or RIGHT:
            self.kept = {}
"""

# A function that is given a group averages within it.
OVER_A_GROUP = """
def average_gradients(model, group):
    for parameter in model.parameters():
        dist.all_reduce(parameter.grad, group=group)
        parameter.grad /= dist.get_world_size(group if RIGHT else None)
"""

# Parameters are marked as seen before torch's base class adds their groups, so it does not add them.
NO_GROUPS = """
class wrap(DistributedDataParallel):
    def wrap_optimizer(self, cls, parameters, **options):
        parameters = [*parameters]
        class Sharded(torch.optim.Optimizer):
            contract = Contract()
            def __init__(self):
                self.inner = cls(parameters, **options)
                super().__init__(parameters, options)
                if RIGHT:
                    self.param_groups = self.inner.param_groups
            def add_param_group(self, group):
                pass
            def step(self, closure=None):
                self.inner.step()
            def zero_grad(self, set_to_none=True):
                self.inner.zero_grad(set_to_none)
        return Sharded()
"""


@pytest.fixture
def judged(lockstep, tmp_path, only):
    """A function that gives the result of check ``code`` for the strategy ``name``, in only those situations."""

    def judge(body: str, name: str, situation: str, code: str, right: bool):
        only(*situation.split())
        path = tmp_path / "mine.py"
        path.write_text(f"{HEAD}RIGHT = {right}\n{body}")
        report = lockstep.verify(f"{path}:{name}", world_size=2, checks=[code], profile="thorough")
        return next(check for check in report.checks if check.code == code)

    return judge


@pytest.mark.parametrize("right", [True, False])
@pytest.mark.parametrize(
    ("body", "name", "situation", "code", "cause"),
    [
        pytest.param(SYNCHRONISED, "wrap", "images", "LS201", None, id="pixels_and_channels"),
        pytest.param(OF_THE_NODE, "wrap", "nodes_buffers", "LS102", "buffers_diverged", id="buffers_of_the_node"),
        pytest.param(REAL_ACCUMULATORS, "wrap", "complex_accumulated", "LS201", "imaginary_part_lost", id="real_part"),
        pytest.param(DECAYS, "wrap", "accumulated_adamw", "LS201", None, id="decay_of_each_micro_batch"),
        pytest.param(
            SIZE_ON_IMPORT, "average_gradients", "imported_first", "LS201", "missing_average", id="size_on_import"
        ),
        pytest.param(LEFT_BEHIND, "wrap", "overflow", "LS202", "never_steps_again", id="left_behind"),
        pytest.param(OVER_A_GROUP, "average_gradients", "subgroup", "LS201", "divided_by_the_job", id="over_a_group"),
        pytest.param(NO_GROUPS, "wrap", "schedule", "LS202", "schedule_ignored", id="no_groups"),
    ],
)
def test_who_is_concerned_is_told(judged, body, name, situation, code, cause, right):
    check = judged(body, name, situation, code, right)
    assert check.verdict == ("pass" if right else "fail"), check
    assert {failure.cause for failure in check.failures} == (set() if right else {cause})


def test_an_early_import_is_the_remedy(judged):
    check = judged(SIZE_ON_IMPORT, "average_gradients", "imported_first", "LS201", False)
    assert {failure.hint[:52] for failure in check.failures} == {"it is right where it is imported once there is a pro"}


MAKES_ONE = "dist.init_process_group('gloo', store=dist.HashStore(), rank=0, world_size=1)"


@pytest.mark.parametrize("start", ["dist.get_rank()", "raise SystemExit(2)", MAKES_ONE])
def test_who_wants_or_makes_a_group_on_import_is_not_asked(judged, start):
    body = f"if not dist.is_initialized():\n    {start}\n{OVER_A_GROUP}"
    check = judged(body, "average_gradients", "imported_first", "LS201", True)
    assert (check.verdict, check.claimed) == ("unknown", False), check


def test_a_report_of_losses_that_are_no_numbers_can_be_read(lockstep, tmp_path):
    path = tmp_path / "mine.py"
    path.write_text(f"{HEAD}def average_gradients(model):\n    for p in model.parameters():\n        p.grad *= 1e60\n")
    report = lockstep.verify(f"{path}:average_gradients", world_size=2, workloads=("branches",), profile="standard")
    read = Report.model_validate_json(report.model_dump_json())
    assert any(0 < len(scenario.losses) < scenario.num_steps for scenario in read.scenarios)
