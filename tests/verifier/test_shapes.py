"""Strategies that are no wrappers: objects beside the model, only hooks, optimizers passed in or returned.

Each shape is also a control (``tests/controls``); here are mistakes in them, and how each shape is recognised.
"""

from __future__ import annotations

from types import SimpleNamespace

import pytest
import torch
from torch import nn

from ddp_core.arguments import model_by_name
from ddp_core.driver import Driver
from ddp_core.recognition import drive, marks, recognise

HEAD = """
import torch, torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

W = dist.get_world_size

def start_equal(model):
    for tensor in [*model.parameters(), *model.buffers()]:
        dist.broadcast(tensor.data, 0)

def mean(parameters, divisor=W):
    for p in parameters:
        used = torch.tensor(int(p.grad is not None))
        dist.all_reduce(used)
        if used:
            p.grad = torch.zeros_like(p) if p.grad is None else p.grad.contiguous()
            dist.all_reduce(p.grad)
            p.grad /= divisor()

class Stepping:
    def __init__(self, optimizer, divisor=W):
        self.optimizer, self.divisor = optimizer, divisor

    def step(self):
        mean([p for group in self.optimizer.param_groups for p in group["params"]], self.divisor)
        self.optimizer.step()
"""

RIGHT = {
    "parameters": (
        """
class Averager:
    def __init__(self, model):
        pass

    def broadcast_params(self, parameters):
        for p in parameters:
            dist.broadcast(p.data, 0)

    def average_gradients(self, parameters):
        mean(parameters)
""",
        "synchronizer",
    ),
    "function": (
        """
def average_gradients(params):
    mean(params)
Averager = average_gradients
""",
        "function",
    ),
    "returned_optimizer": (
        """
def Averager(model):
    start_equal(model)
    return Stepping(torch.optim.SGD(model.parameters(), lr=0.1))
""",
        "step",
    ),
    "tuple": (
        """
def Averager(model):
    return DistributedDataParallel(model), torch.optim.AdamW(model.parameters(), lr=0.002), None
""",
        "native",
    ),
    "engine": (
        """
class Averager:
    def __init__(self, model, optimizer):
        self.module, self.inner = DistributedDataParallel(model), optimizer

    def forward(self, *inputs):
        return self.module(*inputs)

    def backward(self, loss):
        loss.backward()

    def step(self):
        self.inner.step()
""",
        "engine",
    ),
}

WRONG = {
    "summed_in_step": ("def wrap(optimizer):\n    return Stepping(optimizer, lambda: 1)", {"LS201"}, "not averaged"),
    "never": ("def wrap(opt):\n    return opt", {"LS101", "LS201"}, "never reduced"),
    "one_rank_steps": (
        """
def wrap(params, optimizer_cls, **options):
    class Mine(optimizer_cls):
        def step(self):
            if dist.get_rank() == 0:
                super().step()
    return Mine(params, **options)
""",
        {"LS101", "LS202"},
        "did not move in step 0",
    ),
    "hooked_sum": (
        """
def wrap(model):
    start_equal(model)
    for p in model.parameters():
        p.register_post_accumulate_grad_hook(lambda p: dist.all_reduce(p.grad) and None)
""",
        {"LS201"},
        "summed and not averaged",
    ),
    "halved_before_step": (
        """
def wrap(model, optimizer):
    def halve(optimizer, args, kwargs):
        for group in optimizer.param_groups:
            for p in group["params"]:
                p.grad /= 2
    optimizer.register_step_pre_hook(halve)
    return DistributedDataParallel(model), optimizer
""",
        {"LS201"},
        "1/2 of what it should be",
    ),
}


@pytest.fixture
def verify(lockstep, tmp_path):
    def run(body, attribute="wrap"):
        path = tmp_path / "mine.py"
        path.write_text(HEAD + body)
        return lockstep.verify(f"{path}:{attribute}", world_size=2, profile="quick")

    return run


@pytest.mark.parametrize("name", RIGHT)
def test_what_is_right_passes_in_the_style_that_it_has(verify, name):
    body, style = RIGHT[name]
    report = verify(body, "Averager")
    report.assert_pass()
    assert {scenario.driver for scenario in report.scenarios if scenario.driver} == {style}


@pytest.mark.parametrize("name", WRONG)
def test_what_is_wrong_is_found(verify, name):
    body, codes, words = WRONG[name]
    report = verify(body)
    assert codes <= {check.code for check in report.checks if check.verdict == "fail"}, report.summary
    assert words in report.model_dump_json(), report.summary


@pytest.mark.parametrize("arguments", ["rank, world_size, model", "*, model", "group, net=None"])
def test_the_model_is_given_to_the_argument_of_that_name(verify, arguments):
    name = "net" if "net" in arguments else "model"
    verify(f"def wrap({arguments}):\n    return DistributedDataParallel({name})\n").assert_pass()


def test_a_first_argument_of_no_known_name_is_the_model():
    assert model_by_name(lambda m, model=None: m) is None
    assert model_by_name(lambda module, network: module) is None
    assert model_by_name(lambda rank, network: network) == "network"


def test_a_hook_that_is_no_function_is_told_what_it_is(verify):
    body = """
import functools

def hook(state, bucket, divisor):
    return dist.all_reduce(bucket.buffer(), async_op=True).get_future()

wrap = functools.partial(hook, divisor=2)
"""
    report = verify(body)
    assert report.verdict == "unknown"
    assert "looks like a communication hook" in report.summary


def test_a_script_that_parses_its_arguments_does_not_meet_ours(verify):
    body = """
import argparse

parsed = argparse.ArgumentParser().parse_args()

def wrap(model):
    return DistributedDataParallel(model)
"""
    verify(body).assert_pass()


def test_a_function_that_leaves_nothing_is_asked_about(verify):
    report = verify("def wrap(model):\n    start_equal(model)\n")
    assert report.verdict == "unknown"
    assert "no hooks were seen on the model" in report.summary


def test_marks_are_hooks_and_methods():
    model = nn.Sequential(nn.Linear(2, 2), nn.ReLU())
    before = marks(model)
    assert marks(model) == before
    for leave in (
        lambda: model[0].weight.register_hook(lambda gradient: gradient),
        lambda: model[0].bias.register_post_accumulate_grad_hook(lambda parameter: None),
        lambda: model.register_forward_pre_hook(lambda module, inputs: None),
        lambda: model[1].register_full_backward_hook(lambda module, of_inputs, of_outputs: None),
        lambda: setattr(model[1], "forward", lambda inputs: inputs),
        lambda: setattr(model[1], "__class__", nn.GELU),
    ):
        leave()
        assert marks(model) != before
        before = marks(model)


def test_a_tuple_is_taken_apart_where_it_says_what_it_is():
    model = nn.Linear(2, 2)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    assert drive((model, optimizer), model).optimizer_of_wrap is optimizer
    assert drive([model], model).optimizer_of_wrap is None
    for unclear in ((model, 1), (None, optimizer), (model, optimizer, "loader"), ()):
        with pytest.raises(TypeError, match=r"or with its optimizer, \(wrapped, optimizer\)"):
            drive(unclear, model)


def test_a_tensor_is_no_strategy_for_its_backward():
    with pytest.raises(TypeError, match="returned a Tensor object"):
        recognise(torch.ones(2))


def test_zero_grad_is_whoever_has_it():
    model = nn.Linear(2, 2)
    driver = Driver(model, model)
    for optimizer in (SimpleNamespace(), SimpleNamespace(zero_grad=model.zero_grad)):
        model(torch.ones(2)).sum().backward()
        driver.zero_grad(optimizer, set_to_none=False)
        assert not model.weight.grad.any()
        driver.zero_grad(optimizer)
        assert model.weight.grad is None
    zeroed = []
    driver.zero_grad(SimpleNamespace(zero_grad=lambda: zeroed.append(True)), set_to_none=False)
    assert zeroed
