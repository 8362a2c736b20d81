"""After each local step the weights are averaged, instead of the gradients before it.

A class of mistake: the same for plain SGD, and something else for every optimizer with a state, which stays local
(compare huggingface/picotron#39). Replicas agree after every step.
"""

from __future__ import annotations

import torch.distributed as dist

from ddp_core import DataParallel, Strategy

TRIPS = {"LS103", "LS201", "LS202"}
CAUSE = {"weights_made_alike", "optimizer_state_diverged"}


class LocalGradients(Strategy):
    def backward_done(self):
        pass


class AveragesWeights(DataParallel):
    def wrap_optimizer(self, cls, parameters, **options):
        everything = list(parameters)

        class LocalStep(cls):
            def step(self, closure=None):
                super().step(closure)
                for parameter in everything:
                    whole = parameter.data.contiguous()
                    dist.all_reduce(whole)
                    parameter.data.copy_(whole / dist.get_world_size())

        return LocalStep(everything, **options)


def wrap(model):
    return AveragesWeights(model, LocalGradients())
