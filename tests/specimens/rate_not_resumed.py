"""The optimizer inside loads its state; the rate comes from the groups outside, which are as they were made.

A class of mistake, met in sharded optimizers of courses: schedulers are served by handing ``lr`` on in each step, and
what was loaded is overwritten by what the run began with.
"""

from __future__ import annotations

from torch.nn.parallel import DistributedDataParallel

TRIPS = {"LS504"}
CAUSE = "resumed_differently"


class HandedOn(DistributedDataParallel):
    def wrap_optimizer(self, cls, parameters, **options):
        inner = cls(parameters, **options)

        class Outer(cls):
            def step(self, closure=None):
                for own, group in zip(inner.param_groups, self.param_groups, strict=True):
                    own.update({option: value for option, value in group.items() if option != "params"})
                inner.step()

            def state_dict(self):
                return inner.state_dict()

            def load_state_dict(self, state_dict):
                inner.load_state_dict(state_dict)

        return Outer(parameters, **options)


def wrap(model):
    return HandedOn(model, find_unused_parameters=True)
