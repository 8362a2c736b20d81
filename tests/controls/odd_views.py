"""Beside the gradients it sends what few people send: one element at an odd stride, none at all, a bit, sparse ones.

torch calls a single element contiguous whatever its stride is, and yet refuses to show its bytes without more ado.
"""

from __future__ import annotations

import torch
import torch.distributed as dist

from ddp_core import DataParallel
from ddp_core.strategies.naive import Naive

DRIVER = "native"


def _send_odd_ones():
    rank, world_size = dist.get_rank(), dist.get_world_size()
    table = torch.zeros(1, 4, dtype=torch.float64)
    dist.all_reduce(table[:, 1])
    dist.broadcast(table.expand(3, 4)[:1, 2], src=0)
    dist.all_reduce(torch.ones(1).expand(1))
    parts = torch.zeros(1, world_size)
    dist.all_gather([parts[:, other] for other in range(world_size)], torch.full((1,), float(rank)))
    dist.all_reduce(torch.zeros(3, 0))
    dist.all_reduce(torch.tensor([rank == 0, False]), op=dist.ReduceOp.MAX)
    dist.all_reduce(torch.ones(2, dtype=torch.complex64).conj().resolve_conj())
    dist.all_reduce(torch.sparse_coo_tensor([[rank]], torch.ones(1, 2), (world_size, 2)))
    if parts.tolist() != [list(range(world_size))] or table.any():
        raise AssertionError(f"rank {rank} was sent {parts.tolist()} and {table.tolist()}")


class OddViews(DataParallel):
    def forward(self, *inputs, **kwargs):
        _send_odd_ones()
        return super().forward(*inputs, **kwargs)


def wrap(model):
    return OddViews(model, Naive())
