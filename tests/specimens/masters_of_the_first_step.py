"""The optimizer copies its masters in its first step, and never again: loaded into one that has stepped, nothing holds.

A class of mistake, known from mixed precision: a run goes back to an earlier checkpoint without building anything anew,
and the next step writes masters over what was loaded that went on from where they were. Fresh replicas load rightly.
"""

from __future__ import annotations

import torch
from torch.nn.parallel import DistributedDataParallel

TRIPS = {"LS504"}
CAUSE = "resumed_differently"


class LazyMasters(DistributedDataParallel):
    def wrap_optimizer(self, cls, parameters, **options):
        parameters = list(parameters)
        if any(isinstance(entry, dict) for entry in parameters):
            raise NotImplementedError("parameter groups")

        class Stepped(cls):
            masters = None

            @torch.no_grad()
            def step(self, closure=None):
                if self.masters is None:
                    self.masters = [parameter.detach().clone() for parameter in parameters]
                for master, parameter in zip(self.masters, parameters, strict=True):
                    parameter.copy_(master)
                super().step()
                for master, parameter in zip(self.masters, parameters, strict=True):
                    master.copy_(parameter)

        return Stepped(parameters, **options)


def wrap(model):
    return LazyMasters(model, find_unused_parameters=True)
