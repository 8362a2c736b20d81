"""Zeros in the place of a gradient that a rank does not have, row by row in memory where the parameter is transposed.

``torch.zeros(parameter.shape)`` for ``torch.zeros_like(parameter)``: a collective adds up memory, not positions, so the
gradient of the rank that used the weight is added to the zeros in another order. It needs a weight that is both strided
and unused on a rank; see pytorch/pytorch#158902 for strides and a collective.
"""

from __future__ import annotations

import torch
import torch.distributed as dist

TRIPS = {"LS101", "LS201"}
CAUSE = "misplaced_elements"
ATTRIBUTE = "average_gradients"


def average_gradients(model):
    for parameter in model.parameters():
        used = torch.tensor(float(parameter.grad is not None))
        dist.all_reduce(used)
        if not used:
            continue
        if parameter.grad is None:
            parameter.grad = torch.zeros(parameter.shape, dtype=parameter.dtype)
        dist.all_reduce(parameter.grad)
        parameter.grad /= dist.get_world_size()
