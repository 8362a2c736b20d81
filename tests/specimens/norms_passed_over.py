"""A function that averages gradients passes over BatchNorm's weight and bias; buffers are left alone on purpose.

A class of mistake, of the family of deepspeedai/DeepSpeed#1801: what a module is decides how its weights are treated.
Whoever does not synchronise statistics says so, and is not asked about them; the norms' weights are anybody's.
"""

from __future__ import annotations

import torch
import torch.distributed as dist
from torch import nn

from ddp_core import Contract

TRIPS = {"LS101", "LS201"}
CAUSE = "not_synchronised"
ATTRIBUTE = "average_gradients"
CONTRACT = Contract(sync_buffers=False, broadcasts_at_start=False, disclaims={"unused_parameters", "sparse_gradients"})


def average_gradients(model):
    norms = [module for module in model.modules() if isinstance(module, nn.BatchNorm1d)]
    passed_over = {parameter for norm in norms for parameter in norm.parameters()}
    for parameter in model.parameters():
        if parameter.requires_grad and parameter not in passed_over:
            mine = torch.zeros_like(parameter) if parameter.grad is None else parameter.grad
            parameter.grad = mine.clone(memory_format=torch.contiguous_format) / dist.get_world_size()
            dist.all_reduce(parameter.grad)
