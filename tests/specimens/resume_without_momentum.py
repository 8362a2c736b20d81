"""The optimizer's ``state_dict`` carries its options and not its state: a resumed run starts without momentum.

A class of mistake: a wrapper around the optimizer that saves ``param_groups``. The loss jumps at each resume, a
little.
"""

from __future__ import annotations

from torch.nn.parallel import DistributedDataParallel

TRIPS = {"LS504"}
CAUSE = "resumed_differently"


class Forgets(DistributedDataParallel):
    def wrap_optimizer(self, cls, parameters, **options):
        class Stateless(cls):
            def state_dict(self):
                return {**super().state_dict(), "state": {}}

        return Stateless(parameters, **options)


def wrap(model):
    return Forgets(model, find_unused_parameters=True)
