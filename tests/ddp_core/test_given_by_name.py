"""The values that the loop passes to a method or function, by argument name, and its calls beside ``backward``."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from ddp_core.drivers.engine import EngineDriver
from ddp_core.drivers.explicit import ExplicitDriver
from ddp_core.drivers.finish import FinishDriver
from ddp_core.drivers.function import FunctionDriver, is_such_a_name
from ddp_core.methods import NotDrivable, what_it_asks_for
from ddp_core.recognition import recognise


class Wrapper(nn.Module):
    def __init__(self):
        super().__init__()
        self.module, self.given = nn.Linear(1, 1), []

    def forward(self, x):
        return self.module(x)


class Overlapping(Wrapper):
    def backward(self, loss):
        loss.backward()

    def synchronize(self):
        self.given.append("called")


class Asking(Wrapper):
    def sync_gradients(self, optimizer):
        self.given.append(optimizer)


class AskingForAll(Wrapper):
    def all_reduce_grads(self, parameters):
        self.given.append(parameters)


class OfEach(Wrapper):
    def sync_gradients(self, bucket):
        raise NotImplementedError


class TwoVerbs:
    """An object beside a model, whose ``sync()`` synchronises weights and ``allreduce()`` gradients."""

    def __init__(self):
        self.given = []

    def sync(self):
        self.given.append("weights")

    def allreduce(self):
        self.given.append("gradients")


class OneLeadsToTheOther(TwoVerbs):
    def sync(self):
        self.allreduce()
        self.given.append("and copied back")


class ClearsItself(Wrapper):
    def zero_grad(self, set_to_none=True):
        self.given.append(set_to_none)


def average_grad(world_size, model):
    raise NotImplementedError


def train(driver, optimizer):
    driver.start_step(optimizer)
    driver.backward(driver.forward(torch.ones(1, 1)).sum())
    driver.before_step()


def test_a_verb_alone_is_a_loops_to_call_beside_a_backward():
    wrapped = Overlapping()
    assert recognise(wrapped) is ExplicitDriver
    train(ExplicitDriver(wrapped, wrapped.module), None)
    assert wrapped.given == ["called"]
    assert recognise(nn.Linear(1, 1)).style == "native"


def test_one_argument_is_given_by_its_name():
    optimizer, wrapped = object(), Asking()
    assert recognise(wrapped) is ExplicitDriver
    driver = ExplicitDriver(wrapped, wrapped.module)
    for _ in range(2):
        train(driver, optimizer)
    assert wrapped.given == [optimizer, optimizer]
    wrapped = AskingForAll()
    train(ExplicitDriver(wrapped, wrapped.module), optimizer)
    assert wrapped.given == [list(wrapped.module.parameters())]
    assert recognise(OfEach()).style == "native"


def test_of_two_verbs_the_one_of_gradients_is_called_or_what_leads_to_it():
    for kind, calls in ((TwoVerbs, ["gradients"]), (OneLeadsToTheOther, ["gradients", "and copied back"])):
        wrapped = kind()
        assert recognise(wrapped) is ExplicitDriver
        driver = ExplicitDriver(wrapped, nn.Linear(1, 1))
        driver.before_step()
        assert wrapped.given == calls


def test_groups_of_parameters_are_the_optimizers():
    model = nn.Linear(1, 1)
    optimizer = torch.optim.SGD(model.parameters())
    assert what_it_asks_for(lambda param_groups: None, model, optimizer) is optimizer.param_groups


def test_a_zero_grad_of_the_wrappers_own_is_called_beside_the_optimizers():
    wrapped = ClearsItself()
    optimizer = torch.optim.SGD(wrapped.module.parameters())
    wrapped.module.weight.grad = torch.ones(1, 1)
    recognise(wrapped)(wrapped, wrapped.module).zero_grad(optimizer, set_to_none=False)
    assert wrapped.given == [False]
    assert wrapped.module.weight.grad == 0


def test_an_engines_zero_grad_is_called_once():
    wrapped = ClearsItself()
    wrapped.backward, wrapped.step = (lambda loss: None), (lambda: None)
    driver = EngineDriver(wrapped, wrapped.module)
    driver.zero_grad(torch.optim.SGD(wrapped.module.parameters()))
    assert wrapped.given == [True]


def test_a_function_may_ask_for_the_world_size_first():
    assert FunctionDriver.fits(average_grad)
    assert not FunctionDriver.fits(average_grad, world_size=2, model=None), "nothing is left to hand over"


@pytest.mark.parametrize("name", ["all_reduce_gradients_v2", "allreduce_sum_grads", "sync_gradients_gather_scatter"])
def test_names_of_functions(name):
    assert is_such_a_name(name)


@pytest.mark.parametrize("kind", [ExplicitDriver, FinishDriver])
def test_a_style_that_has_no_method_to_call_says_so(kind):
    with pytest.raises(NotDrivable, match="choose another --driver"):
        kind(nn.Linear(1, 1))
