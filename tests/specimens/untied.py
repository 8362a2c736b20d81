"""Every module's parameters are made anew, so that an embedding and the head that shared one tensor have one each.

The head's share of the gradient then goes to a tensor that only the head uses, and the two drift apart.
Source: https://github.com/NVIDIA/Megatron-LM/issues/656
"""

from __future__ import annotations

from torch import nn
from torch.nn.parallel import DistributedDataParallel

TRIPS = {"LS201", "LS701"}  # reducing two tensors where there was one is waste as well
CAUSE = "untied"


def wrap(model):
    for module in model.modules():
        for name, parameter in module.named_parameters(recurse=False):
            setattr(module, name, nn.Parameter(parameter.detach().clone(), parameter.requires_grad))
    return DistributedDataParallel(model, find_unused_parameters=True)
