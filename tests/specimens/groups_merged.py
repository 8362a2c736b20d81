"""Groups whose options are equal are merged into one when the optimizer is made; later rates reach the first of them.

A class of mistake: fewer, larger groups for a fused or flat update. It holds until a schedule gives one group another
learning rate (compare NVIDIA/Megatron-LM#882).
"""

from __future__ import annotations

import torch
from torch.nn.parallel import DistributedDataParallel

TRIPS = {"LS202"}
CAUSE = "schedule_ignored"


def merged(groups):
    alike = {}
    for group in groups:
        options = {name: value for name, value in group.items() if name != "params"}
        alike.setdefault(repr(sorted(options.items())), []).append(group)
    return list(alike.values())


class Merging(torch.optim.Optimizer):
    def __init__(self, cls, parameters, **options):
        super().__init__(parameters, options)
        self.parts = merged(self.param_groups)
        together = ([p for group in part for p in group["params"]] for part in self.parts)
        self.inner = cls(
            [{**part[0], "params": params} for part, params in zip(self.parts, together, strict=True)], **options
        )
        self.state = self.inner.state

    def step(self, closure=None):
        for part, inner in zip(self.parts, self.inner.param_groups, strict=True):
            inner.update({name: value for name, value in part[0].items() if name != "params"})
        self.inner.step()

    def load_state_dict(self, saved):
        place_of = {id(group): place for place, group in enumerate(self.param_groups)}
        places = [[place_of[id(group)] for group in part] for part in self.parts]
        super().load_state_dict(saved)
        self.parts = [[self.param_groups[place] for place in part] for part in places]
        self.inner.state = self.state


class WithOptimizer(DistributedDataParallel):
    def wrap_optimizer(self, cls, parameters, **options):
        return Merging(cls, parameters, **options)


def wrap(model):
    return WithOptimizer(model, find_unused_parameters=True)
