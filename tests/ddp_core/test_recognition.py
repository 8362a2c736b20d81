"""What a stranger's function or class asks for, told by its arguments."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from ddp_core.arguments import names_an_optimizer
from ddp_core.drivers.distributed_optimizer import takes_a_class
from ddp_core.methods import what_it_asks_for


class ByDefault:
    def __init__(self, params, which=torch.optim.SGD, **options):
        raise NotImplementedError


def by_name(parameters, base_optimizer):
    raise NotImplementedError


def wrap(model, optimizer):
    raise NotImplementedError


@pytest.mark.parametrize(("target", "takes"), [(ByDefault, True), (by_name, True), (wrap, False), (len, False)])
def test_an_optimizer_that_is_built_from_a_class(target, takes):
    assert takes_a_class(target) is takes


@pytest.mark.parametrize("name", ["optimizer", "opt", "actual_optimizer", "torch_optimizer"])
def test_names_of_optimizers(name):
    assert names_an_optimizer(name)


@pytest.mark.parametrize("name", [None, "model", "optimizer_class", "optimizer_cls", "options"])
def test_names_of_other_things(name):
    assert not names_an_optimizer(name)


def test_the_one_argument_is_what_its_name_says():
    model, optimizer = nn.Linear(2, 2), object()
    assert [name for name, _ in what_it_asks_for(lambda named_parameters: None, model, optimizer)] == ["weight", "bias"]
    assert what_it_asks_for(lambda params: None, model, optimizer) == list(model.parameters())
    assert what_it_asks_for(lambda opt: None, model, optimizer) is optimizer
    assert what_it_asks_for(lambda net: None, model, optimizer) is model
