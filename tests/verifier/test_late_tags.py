"""Gradients averaged in an autograd node before the parameter: tags come too late, and other scenarios judge them."""

from __future__ import annotations

import json

import pytest

BODY = """
import torch, torch.distributed as dist
from ddp_core import Contract

CONTRACT = Contract(supports=("accumulation", "state_dict"))  # not: unused parameters

class Mean(torch.autograd.Function):
    @staticmethod
    def forward(ctx, parameter):
        return parameter.view_as(parameter)

    @staticmethod
    def backward(ctx, gradient):
        total = gradient.clone(memory_format=torch.contiguous_format)
        dist.all_reduce(total)
        return RESULT

class wrap(torch.nn.Module):
    def __init__(self, module):
        super().__init__()
        self.module = module
        for tensor in module.state_dict().values():
            dist.broadcast(tensor, 0)

    def forward(self, *inputs):
        averaged = {name: Mean.apply(p) for name, p in self.module.named_parameters()}
        return torch.func.functional_call(self.module, averaged, inputs)
"""


@pytest.fixture
def verify(lockstep, tmp_path):
    def run(result, **asked):
        path = tmp_path / "mine.py"
        path.write_text(BODY.replace("RESULT", result))
        return lockstep.verify(f"{path}:wrap", out=tmp_path / "out", **asked)

    return run


@pytest.mark.usefixtures("in_short")
@pytest.mark.parametrize("world_size", [2, 3])
def test_a_mean_in_front_of_the_parameter_is_right(verify, world_size, tmp_path):
    report = verify("total / dist.get_world_size()", world_size=world_size, workloads=["exact", "branches"])
    report.assert_pass()
    verdicts = json.loads((tmp_path / "out" / "report.json").read_text())["checks"]
    assert {v["code"]: v["verdict"] for v in verdicts}["LS201"] == "pass"


@pytest.mark.parametrize(
    ("result", "cause"), [("total", "missing_average"), ("gradient", "not_synchronised"), ("total * 0.25", None)]
)
def test_what_is_wrong_there_is_found_without_tags(verify, result, cause):
    report = verify(result, world_size=3)
    assert report.verdict == "fail"
    (found,) = [c for c in report.checks if c.code == "LS201"]
    assert found.verdict == "fail"
    if cause is not None:
        assert found.failures[0].cause == cause


def test_tags_alone_say_nothing_of_it(lockstep, tmp_path, only):
    only("branch_order", "branches_unmarked", "large")
    path = tmp_path / "mine.py"
    path.write_text(BODY.replace("RESULT", "total"))
    report = lockstep.verify(f"{path}:wrap", workloads=["branches"], world_size=2)
    (found,) = [check for check in report.checks if check.code == "LS201"]
    assert {failure.scenario for failure in found.failures} == {"branches_unmarked"}  # whose gradients have no tags


# fully_shard replaces the parameters that it shards, and leaves the ignored ones.
IN_PART = """
import torch.distributed as dist
from torch.distributed.fsdp import fully_shard
from ddp_core import Contract

CONTRACT = Contract(sync_buffers=False, sharded=True, disclaims={"unused_parameters", "accumulation", "branch_order"})

def mean(parameter):
    parameter.grad /= dist.get_world_size()
    dist.all_reduce(parameter.grad)

def wrap(model):
    for tensor in model.state_dict().values():
        dist.broadcast(tensor, 0)
    left = [p for p in model.parameters() if p.dim() < 2]
    for parameter in left if RIGHT else left[1:]:
        parameter.register_post_accumulate_grad_hook(mean)
    fully_shard(model, ignored_params={*left})
    return model
"""


@pytest.mark.usefixtures("in_short")
@pytest.mark.parametrize("right", [True, False])
def test_where_some_parameters_are_others_than_were_tagged(lockstep, tmp_path, right):
    path = tmp_path / "mine.py"
    path.write_text(f"RIGHT = {right}\n{IN_PART}")
    report = lockstep.verify(f"{path}:wrap", world_size=2, workloads=["exact", "branches"], profile="standard")
    assert report.verdict == ("pass" if right else "fail")
    if not right:
        assert {f.parameter for check in report.checks for f in check.failures if f.scenario == "plain"} == {
            "inlet.bias"
        }


# One bias is averaged in front of its parameter, or made anew; the largest tensors are forgotten.
ONE_OF_ALL = """
import torch, torch.distributed as dist
from torch.nn import functional as F
from ddp_core import Contract

class Mean(torch.autograd.Function):
    @staticmethod
    def forward(ctx, parameter):
        return parameter.view_as(parameter)

    @staticmethod
    def backward(ctx, gradient):
        total = gradient.clone(memory_format=torch.contiguous_format)
        dist.all_reduce(total)
        return total / dist.get_world_size()

class wrap:
    def __init__(self, model):
        self.model = model
        for tensor in model.state_dict().values():
            dist.broadcast(tensor, 0)
        last = model.branches[sorted(model.branches)[-1]]
        if ANEW:
            last.bias = torch.nn.Parameter(last.bias.detach().clone())
        else:
            last.forward = lambda x: F.linear(x, last.weight, Mean.apply(last.bias))

    def __call__(self, *inputs):
        return self.model(*inputs)

    def sync_gradients(self):
        for parameter in self.model.parameters():
            if RIGHT or parameter.numel() < 10**6:
                dist.all_reduce(parameter.grad)
                parameter.grad /= dist.get_world_size()
"""


@pytest.mark.parametrize("anew", [True, False])
@pytest.mark.parametrize("right", [True, False])
def test_one_parameter_that_tags_do_not_reach_hides_no_other(lockstep, tmp_path, only, right, anew):
    only("branch_order", "large")
    path = tmp_path / "mine.py"
    path.write_text(f"RIGHT, ANEW = {right}, {anew}\n{ONE_OF_ALL}")
    report = lockstep.verify(f"{path}:wrap", world_size=2, workloads=["branches"], profile="standard")
    assert report.verdict == ("pass" if right else "fail"), report.summary
    failed = {(check.code, failure.scenario) for check in report.checks for failure in check.failures}
    assert failed == (set() if right else {("LS101", "large"), ("LS201", "large")}), failed
