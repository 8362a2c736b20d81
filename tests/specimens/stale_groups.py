"""An optimizer around another hands out its groups once; loading gives the one inside new ones.

NVIDIA/apex#766: LARC's ``param_groups`` are those of the optimizer inside until that loads what was saved. torch's
``load_state_dict()`` makes new dictionaries, and the scheduler goes on to change the old ones, which nobody reads. Same
mechanism: microsoft/rat-sql#45.
"""

from __future__ import annotations

import torch
from torch.nn.parallel import DistributedDataParallel

TRIPS = {"LS504"}
CAUSE = "schedule_ignored"


class Around(torch.optim.Optimizer):
    def __init__(self, inner):
        self.inner, self.defaults = inner, inner.defaults
        self.param_groups, self.state = inner.param_groups, inner.state

    def step(self, closure=None):
        return self.inner.step()

    def zero_grad(self, set_to_none=True):
        self.inner.zero_grad(set_to_none=set_to_none)

    def state_dict(self):
        return self.inner.state_dict()

    def load_state_dict(self, saved):
        self.inner.load_state_dict(saved)
        self.state = self.inner.state


class WithAnother(DistributedDataParallel):
    def wrap_optimizer(self, cls, parameters, **options):
        return Around(cls(parameters, **options))


def wrap(model):
    return WithAnother(model, find_unused_parameters=True)
