"""A wrapper around the optimizer hands the learning rate on to the one inside, and no other option: momentum stays.

A class of mistake: ``inner.param_groups[0]["lr"] = group["lr"]`` serves schedulers of the rate. ``OneCycleLR`` moves
momentum as well, by default.
"""

from __future__ import annotations

from torch.nn.parallel import DistributedDataParallel

TRIPS = {"LS202"}
CAUSE = "schedule_ignored"


class RateAlone(DistributedDataParallel):
    def wrap_optimizer(self, cls, parameters, **options):
        inner = cls(parameters, **options)

        class Outer(cls):
            def step(self, closure=None):
                for own, group in zip(inner.param_groups, self.param_groups, strict=True):
                    own["lr"] = group["lr"]
                inner.step()

            def state_dict(self):
                return inner.state_dict()

            def load_state_dict(self, state_dict):
                inner.load_state_dict(state_dict)
                for own, group in zip(inner.param_groups, self.param_groups, strict=True):
                    group["lr"] = own["lr"]

        return Outer(parameters, **options)


def wrap(model):
    return RateAlone(model, find_unused_parameters=True)
