"""Parameters are averaged in the order of a set of their names, which each interpreter draws anew.

A class of mistake: ``set(names) - {...}``, a set that removes duplicates. Ranks that are forks of one process agree on
the order (PYTHONHASHSEED); under torchrun, each is an interpreter of its own.
"""

from __future__ import annotations

import torch

from ddp_core import DataParallel
from ddp_core.strategies.flat import Flat

TRIPS = {"LS101", "LS201", "LS301"}
CAUSE = {"bucket_contents_differ", "another_parameters_gradient"}


class ByName(Flat):
    def prepare(self, named_parameters, comm):
        named = dict(named_parameters)
        super().prepare([(name, named[name]) for name in set(named)], comm)


def wrap(model: torch.nn.Module) -> DataParallel:
    return DataParallel(model, ByName())
