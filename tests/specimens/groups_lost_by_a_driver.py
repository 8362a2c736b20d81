"""A driver makes the optimizer that it is asked for, of the loop's parameters without their groups.

A class of mistake, as groups_flattened is, in a loop of its own (``ddp_core.Driver``): what is returned is of the class
that was asked for, and has the model's parameters, so nothing but their options tells that groups were lost.
"""

from __future__ import annotations

from torch.nn.parallel import DistributedDataParallel

from ddp_core import Driver

ATTRIBUTE = "Lays"
TRIPS = {"LS202"}
CAUSE = "update_scaled"


class Lays(Driver):
    def prepare(self, model):
        return DistributedDataParallel(model, find_unused_parameters=True)

    def make_optimizer(self, cls, parameters, **options):
        tensors = [p for entry in parameters for p in (entry["params"] if isinstance(entry, dict) else [entry])]
        return cls(tensors, **options)
