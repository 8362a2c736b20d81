"""A third round of public implementations, which were correct but failed, each rebuilt in our own words.

Special here: each is compared with the same strategy with a mistake, which must still be reported.
"""

from __future__ import annotations

import pytest

HEAD = """
import copy
import torch, torch.distributed as dist
from torch import nn
from torch.nn.utils.parametrize import register_parametrization
from ddp_core import Contract, Driver
CONTRACT = Contract(sync_buffers=False, broadcasts_at_start=False, disclaims={"unused_parameters", "sparse_gradients"})
def average(tensor):
    dist.all_reduce(tensor)
    return tensor.div_(dist.get_world_size())
"""

# As in simple_fsdp: parameters are made anew, under the names "parametrizations.weight.original".
PARAMETRIZED = """
class Averaged(torch.autograd.Function):
    @staticmethod
    def forward(ctx, weight):
        return weight.view_as(weight)
    @staticmethod
    def backward(ctx, gradient):
        return average(gradient.clone()) * FACTOR
class Replicated(nn.Module):
    def forward(self, weight):
        return Averaged.apply(weight)
def wrap(model):
    for module in [*model.modules()]:
        for name, parameter in [*module.named_parameters(recurse=False)]:
            module.register_parameter(name, nn.Parameter(parameter.detach().clone()))
            register_parametrization(module, name, Replicated())
    return model
"""

# As in DeMo: gradients are reduced in step(), .grad is set to the step's change, and SGD's own step() applies it.
SIGN_IN_STEP = """
CONTRACT = Contract(optimizer="own", sync_buffers=False, broadcasts_at_start=False, disclaims={"unused_parameters"})
class Signs(torch.optim.SGD):
    @torch.no_grad()
    def step(self, closure=None):
        for group in self.param_groups:
            for parameter in group["params"]:
                if FACTOR == 1:
                    average(parameter.grad)
                parameter.grad.sign_()
        return super().step(closure)
class Loop(Driver):
    can_clip = False
    def make_optimizer(self, cls, parameters, lr=0.01, **options):
        return Signs([*parameters], lr=lr)
"""

# Signs again; a rank without a gradient sends zeros. With FACTOR 2 such a rank does not step by the others' mean.
SIGN_OF_ALL_IN_STEP = """
CONTRACT = Contract(optimizer="own", sync_buffers=False, broadcasts_at_start=False, disclaims={"sparse_gradients"})
class Signs(torch.optim.SGD):
    @torch.no_grad()
    def step(self, closure=None):
        for parameter in [p for group in self.param_groups for p in group["params"]]:
            mine, used = parameter.grad, torch.tensor(float(parameter.grad is not None))
            dist.all_reduce(used)
            if used:
                whole = average((torch.zeros_like(parameter) if mine is None else mine).contiguous())
                parameter.grad = whole.sign() if FACTOR == 1 or mine is not None else None
        return super().step(closure)
class Loop(Driver):
    can_clip = False
    def make_optimizer(self, cls, parameters, lr=0.01, **options):
        return Signs([*parameters], lr=lr)
"""

# As in a DiLoCo strategy: only rank 0 holds an outer optimizer, over a copy, before the optimizer that steps.
ONE_RANK_HAS_TWO = """
class Strategy:
    def __init__(self, model):
        self.module = model
        if dist.get_rank() == 0:
            self.outer = torch.optim.SGD(copy.deepcopy(model).parameters(), lr=0.7)
        self.optim = torch.optim.AdamW(model.parameters(), lr=0.01)
    def __call__(self, *inputs):
        return self.module(*inputs)
    def zero_grad(self):
        self.optim.zero_grad()
    def step(self):
        for parameter in self.module.parameters():
            average(parameter.grad)
            parameter.grad *= FACTOR
        self.optim.step()
    def state_dict(self):
        return self.module.state_dict()
    def load_state_dict(self, saved):
        self.module.load_state_dict(saved)
def wrap(model):
    return Strategy(model)
"""


# One layer is made anew under unknown names; a bias is recognised by its name, as in scripts.
RENAMED = """
class Anew(nn.Module):
    def __init__(self, layer):
        super().__init__()
        self.kernel = nn.Parameter(layer.weight.detach().clone())
        self.own_bias = nn.Parameter(layer.bias.detach().clone())
    def forward(self, x):
        return nn.functional.linear(x, self.kernel, self.own_bias)
def wrap(model):
    model.inlet = Anew(model.inlet)
    return nn.parallel.DistributedDataParallel(model)
"""


@pytest.fixture
def verdicts(lockstep, tmp_path):
    def told(body: str, name: str, factor: float, *codes: str) -> dict[str, str]:
        path = tmp_path / "mine.py"
        path.write_text(f"{HEAD}FACTOR = {factor}\n{body}")
        report = lockstep.verify(f"{path}:{name}", world_size=2, checks=codes, workloads=("exact",))
        return {check.code: check.verdict for check in report.checks if check.code in codes}

    return told


@pytest.mark.usefixtures("in_short")
def test_parameters_that_a_parametrization_has_renamed(verdicts):
    assert verdicts(PARAMETRIZED, "wrap", 1, "LS101", "LS201") == {"LS101": "pass", "LS201": "pass"}
    assert verdicts(PARAMETRIZED, "wrap", 2, "LS101", "LS201") == {"LS101": "pass", "LS201": "fail"}


@pytest.mark.usefixtures("in_short")
def test_a_gradient_that_is_reduced_and_made_a_step_of_inside(verdicts):
    told = verdicts(SIGN_IN_STEP, "Loop", 1, "LS101", "LS201", "LS202")
    assert told == {"LS101": "pass", "LS201": "unknown", "LS202": "pass"}
    assert verdicts(SIGN_IN_STEP, "Loop", 2, "LS101")["LS101"] == "fail"


def test_who_had_no_gradient_steps_by_what_the_others_have_brought(lockstep, tmp_path, only):
    only("unused", "unused_float32")

    def told(factor):
        path = tmp_path / "mine.py"
        path.write_text(f"{HEAD}FACTOR = {factor}\n{SIGN_OF_ALL_IN_STEP}")
        report = lockstep.verify(f"{path}:Loop", world_size=2, checks=("LS101", "LS201"), workloads=("routed",))
        return {check.code: check for check in report.checks if check.code in ("LS101", "LS201")}

    assert all(check.verdict in ("pass", "unknown") for check in told(1).values())
    wrong = told(2)
    assert [check.verdict for check in wrong.values()] == ["fail", "fail"]
    assert {failure.parameter.split(".")[0] for failure in wrong["LS201"].failures} == {"branches"}  # but not the inlet


def test_the_optimizer_that_steps_is_the_same_on_every_rank(verdicts):
    codes = ("LS101", "LS202", "LS301")
    assert verdicts(ONE_RANK_HAS_TWO, "wrap", 1, *codes) == dict.fromkeys(codes, "pass")


@pytest.mark.usefixtures("in_short")
def test_a_parameter_that_is_nowhere_shown_is_not_known_to_lack_a_gradient(lockstep, tmp_path):
    path = tmp_path / "mine.py"
    path.write_text(f"{HEAD}{RENAMED}")
    report = lockstep.verify(f"{path}:wrap", world_size=2, checks=("LS201",), workloads=("exact",))
    check = next(check for check in report.checks if check.code == "LS201")
    assert check.verdict == "unknown"
    assert "shows no parameter inlet." in check.why
