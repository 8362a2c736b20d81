"""A wrapper around the optimizer lays its parameter groups together: what one of them was to have, none has.

A class of mistake: a sharded optimizer walks through ``for group in params`` to find tensors, and builds anew from
those alone. Biases decay, and learn as fast as the rest.
"""

from __future__ import annotations

from torch.nn.parallel import DistributedDataParallel

TRIPS = {"LS202"}
CAUSE = "update_scaled"


class Flattens(DistributedDataParallel):
    def wrap_optimizer(self, cls, parameters, **options):
        tensors = [p for entry in parameters for p in (entry["params"] if isinstance(entry, dict) else [entry])]
        return cls(tensors, **options)


def wrap(model):
    return Flattens(model, find_unused_parameters=True)
