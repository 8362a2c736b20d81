"""A ring that sums chunk by chunk and then passes the sums on; every chunk is received where the largest has room.

Special here: the last chunk is smaller, so fewer elements arrive than there is room for, as gloo and MPI allow.
"""

from __future__ import annotations

import torch
import torch.distributed as dist

from ddp_core import DataParallel, Strategy
from ddp_core.strategy import drop_if_nobody_used, gradient_to_send

DRIVER = "native"


class RingInChunks(Strategy):
    def backward_done(self):
        for parameter in self.parameters:
            used_here = parameter.grad is not None
            gradient = gradient_to_send(parameter)
            flat = gradient.reshape(-1).clone()
            self.turn(torch.view_as_real(flat).reshape(-1) if flat.is_complex() else flat)
            gradient.copy_(flat.view(gradient.shape))
            drop_if_nobody_used(parameter, used_here=used_here)
            if parameter.grad is not None:
                self.average(parameter.grad)

    def turn(self, flat):
        """Sum ``flat`` (1-D, real) over all ranks, in place: W - 1 hops that add, and W - 1 that copy."""
        rank, world_size = dist.get_rank(), dist.get_world_size()
        size = -(-flat.numel() // world_size)
        chunks = [flat[number * size : (number + 1) * size] for number in range(world_size)]
        room = flat.new_empty(size)
        for hop in range(2 * (world_size - 1)):
            sending = dist.isend(chunks[(rank - hop) % world_size].clone(), (rank + 1) % world_size)
            dist.recv(room, (rank - 1) % world_size)
            sending.wait()
            target = chunks[(rank - hop - 1) % world_size]
            arrived = room[: target.numel()]
            target.copy_(arrived if hop >= world_size - 1 else target + arrived)


def wrap(model):
    return DataParallel(model, RingInChunks())
