"""Parameters keep the bare model's names, whatever wrapping has put between its modules."""

from __future__ import annotations

import torch
from torch import nn
from torch.distributed.algorithms._checkpoint.checkpoint_wrapper import checkpoint_wrapper
from torch.nn.utils.parametrize import register_parametrization

from verifier.run.names import Names


def model():
    layers = nn.Sequential(nn.Linear(2, 2), nn.BatchNorm1d(2), nn.Linear(2, 2, bias=False))
    layers.register_buffer("table", torch.zeros(2), persistent=False)
    return layers


def test_a_parameter_is_told_by_what_it_is():
    layers = model()
    names, before = Names(layers), [name for name, _ in layers.named_parameters()]
    layers[0] = checkpoint_wrapper(layers[0])
    renamed = list(layers.named_parameters())
    assert [name for name, _ in renamed] != before
    assert [name for name, _ in names.restored(renamed)] == before


def test_one_that_was_exchanged_is_told_by_its_name():
    layers = model()
    names, before = Names(layers), [name for name, _ in layers.named_parameters()]
    layers[0] = checkpoint_wrapper(layers[0])
    exchanged = [(name, nn.Parameter(p.detach().clone())) for name, p in layers.named_parameters()]
    assert [name for name, _ in names.restored(exchanged)] == before
    assert names.restored([("new._orig_mod.weight", exchanged[0][1])])[0][0] == "new._orig_mod.weight"


def test_one_that_a_parametrization_made_anew_is_told_by_its_name():
    layers = model()
    names, before = Names(layers), [name for name, _ in layers.named_parameters()]
    for layer in (layers[0], layers[2]):
        layer.register_parameter("weight", nn.Parameter(layer.weight.detach().clone()))
        register_parametrization(layer, "weight", nn.Identity())
    assert {name for name, _ in names.restored(layers.named_parameters())} == {*before}


def test_what_is_not_saved_is_known():
    names = Names(model())
    assert names.transient == ["table"]
    assert {"0.weight", "1.running_mean", "table"} <= set(names.all)
