"""A function averages the gradients of the layers that it knows; a BatchNorm's weight and bias are of none of them.

A class of mistake, as ``norms_skipped``, of who leaves buffers alone and says so by being a function: no situation with
norms asked such a one.
"""

from __future__ import annotations

import torch
import torch.distributed as dist
from torch import nn

from ddp_core import Contract

ATTRIBUTE = "average_gradients"
CONTRACT = Contract(sync_buffers=False, broadcasts_at_start=False, disclaims={"unused_parameters", "sparse_gradients"})
TRIPS = {"LS101", "LS201"}
CAUSE = "not_synchronised"


def average_gradients(model):
    norms = (module for module in model.modules() if isinstance(module, nn.BatchNorm1d))
    passed_over = {parameter for norm in norms for parameter in norm.parameters()}
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.requires_grad and parameter not in passed_over:
                mine = torch.zeros_like(parameter) if parameter.grad is None else parameter.grad
                if mine.is_sparse:
                    mine = mine.to_dense()
                mine = mine.contiguous()
                dist.all_reduce(mine)
                parameter.grad = mine / dist.get_world_size()
