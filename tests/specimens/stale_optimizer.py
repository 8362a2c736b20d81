"""The optimizer holds the parameters from before wrapping, which are no longer the model's: nothing is ever trained.

huggingface/accelerate#2665: the loss stays flat. Wrapping replaced the parameters, and the optimizer was made before.
"""

from __future__ import annotations

from torch import nn
from torch.nn.parallel import DistributedDataParallel

TRIPS = {"LS202"}
CAUSE = "not_stepped"


class Replaces(DistributedDataParallel):
    def __init__(self, model):
        self.__dict__["before"] = list(model.parameters())
        fresh = {id(p): nn.Parameter(p.detach().clone(), p.requires_grad) for p in model.parameters()}
        for part in model.modules():
            for name, parameter in list(part.named_parameters(recurse=False)):
                setattr(part, name, fresh[id(parameter)])
        super().__init__(model, find_unused_parameters=True)

    def wrap_optimizer(self, cls, parameters, **options):
        return cls([p for p in self.__dict__["before"] if p.requires_grad], **options)


def wrap(model):
    return Replaces(model)
