"""Parameters are kept by name in a dictionary of the module, so that a second model takes the places of the first.

A class of mistake, of wrappers that are written for one model: whatever they keep outside of the instance (a registry
by name, as Horovod names its tensors, a list that belongs to the class) is shared. In adversarial training the network
that was wrapped first goes on, and is never synchronised. Alone, or wrapped last, a model is right.
"""

from __future__ import annotations

from torch import nn

from ddp_core import DataParallel
from ddp_core.strategies.naive import CONTRACT, Naive

TRIPS = {"LS101", "LS201"}
CAUSE = "not_synchronised"

REGISTRY: dict[str, nn.Parameter] = {}


class ByName(Naive):
    def prepare(self, named_parameters, comm):
        super().prepare(named_parameters, comm)
        REGISTRY.update(named_parameters)
        self.names = [name for name, _ in named_parameters]

    def backward_done(self):
        self.parameters = [REGISTRY[name] for name in self.names]
        super().backward_done()


def wrap(model):
    return DataParallel(model, ByName())


__all__ = ["CONTRACT", "wrap"]
