"""The optimizer steps twice: once in the wrapper, when gradients have arrived, and once in the loop.

huggingface/accelerate#2790 (an option to synchronise each batch also stepped): all replicas do it alike.
"""

from __future__ import annotations

from torch.nn.parallel import DistributedDataParallel

TRIPS = {"LS202"}
CAUSE = "stepped_twice"


class StepsToo(DistributedDataParallel):
    def wrap_optimizer(self, cls, parameters, **options):
        class Twice(cls):
            def step(self, closure=None):
                super().step(closure)
                return super().step(closure)

        return Twice(parameters, **options)


def wrap(model):
    return StepsToo(model, find_unused_parameters=True)
