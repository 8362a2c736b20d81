"""Buckets by dtype, from a table that somebody wrote when bfloat16 was new: halves are in none, and stay local.

A class of mistake, next to deepspeedai/DeepSpeed#8382: what a list of dtypes leaves out is left out without a word.
"""

from __future__ import annotations

import torch
import torch.distributed as dist

from tests.controls.own_driver import CONTRACT as CONTRACT
from tests.controls.own_driver import HandedOver

TRIPS = {"LS101", "LS201"}
CAUSE = "not_synchronised"
TABLE = (torch.float64, torch.float32, torch.bfloat16, torch.complex64, torch.complex128)


class FromATable(HandedOver):
    def before_step(self):
        trained = [p for _, p in self.named_parameters() if p.requires_grad]
        used = torch.tensor([int(p.grad is not None) for p in trained], device=trained[0].device)
        dist.all_reduce(used)
        due = [parameter for parameter, number in zip(trained, used.tolist(), strict=True) if number]
        for dtype in TABLE:
            for parameter in (p for p in due if p.dtype == dtype):
                mine = torch.zeros_like(parameter) if parameter.grad is None else parameter.grad
                parameter.grad = mine.contiguous() / dist.get_world_size()
                dist.all_reduce(parameter.grad)


wrap = FromATable
