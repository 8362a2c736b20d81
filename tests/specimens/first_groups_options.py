"""An optimizer is loaded, and every group of parameters has the options of the first from then on.

A class of mistake: options are saved once for all groups, which holds until somebody excludes biases from the decay.
"""

from __future__ import annotations

from torch.nn.parallel import DistributedDataParallel

TRIPS = {"LS504"}
CAUSE = "resumed_differently"


class WithOptimizer(DistributedDataParallel):
    def wrap_optimizer(self, cls, parameters, **options):
        class Loading(cls):
            def load_state_dict(self, saved):
                first = {name: value for name, value in saved["param_groups"][0].items() if name != "params"}
                super().load_state_dict(
                    {**saved, "param_groups": [{**group, **first} for group in saved["param_groups"]]}
                )

        return Loading(parameters, **options)


def wrap(model):
    return WithOptimizer(model, find_unused_parameters=True)
