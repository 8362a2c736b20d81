"""Each parameter has an optimizer of its own inside, made once; the scheduler sees the one outside.

A class of mistake: a sharded or fused optimizer copies the learning rate when it is made. Everything agrees until the
schedule begins, and then training goes on as if there were none.
"""

from __future__ import annotations

from ddp_core import DataParallel
from ddp_core.strategies.naive import Naive

TRIPS = {"LS202"}
CAUSE = "schedule_ignored"


class InnerOptimizers(DataParallel):
    def wrap_optimizer(self, cls, parameters, **options):
        class Outer(cls):
            def __init__(self, parameters, **options):
                super().__init__(parameters, **options)
                self.inner = [cls([p], **options) for group in self.param_groups for p in group["params"]]
                self.state = {p: optimizer.state[p] for optimizer in self.inner for p in optimizer.state}

            def step(self, closure=None):
                for optimizer in self.inner:
                    optimizer.step()

            def state_dict(self):
                return [optimizer.state_dict() for optimizer in self.inner]

            def load_state_dict(self, states):
                for optimizer, state in zip(self.inner, states, strict=True):
                    optimizer.load_state_dict(state)

        return Outer(list(parameters), **options)


def wrap(model):
    return InnerOptimizers(model, Naive())
