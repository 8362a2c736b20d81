"""The optimizer's ``state_dict`` carries moments and not the number of steps: Adam's correction begins anew.

A class of mistake: what is saved is filtered by shape, "one entry for each parameter", and a scalar is none. With SGD
there is nothing to see.
"""

from __future__ import annotations

import torch
from torch.nn.parallel import DistributedDataParallel

TRIPS = {"LS504"}
CAUSE = "resumed_differently"


class Shapely(DistributedDataParallel):
    def wrap_optimizer(self, cls, parameters, **options):
        class WithoutSteps(cls):
            def state_dict(self):
                saved = super().state_dict()
                state = {number: {**entry} for number, entry in saved["state"].items()}
                for entry in state.values():
                    if "step" in entry:
                        entry["step"] = torch.zeros(())
                return {**saved, "state": state}

        return WithoutSteps(parameters, **options)


def wrap(model):
    return Shapely(model, find_unused_parameters=True)
