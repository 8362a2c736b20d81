"""Large tensors are reduced in pieces of 2^20 elements, and the piece that is not a whole one is not.

A class of mistake: ``for i in range(numel // size)``. Every tensor of up to 2^20 elements is right, as is every test
that is made with such.
"""

from __future__ import annotations

import torch

from ddp_core import DataParallel
from ddp_core.strategy import Strategy, drop_if_nobody_used, gradient_to_send

TRIPS = {"LS101", "LS201"}
CAUSE = "reduced_in_part"
SIZE = 2**20


class Pieces(Strategy):
    def backward_done(self):
        for parameter in self.parameters:
            used_here = parameter.grad is not None
            gradient = gradient_to_send(parameter)
            flat = torch.empty_like(parameter, memory_format=torch.contiguous_format).detach().copy_(gradient).view(-1)
            pieces = [flat[i * SIZE : (i + 1) * SIZE] for i in range(flat.numel() // SIZE)] or [flat]
            for piece in pieces:
                self.comm.all_reduce(piece)
            gradient.copy_(flat.view(parameter.shape))
            drop_if_nobody_used(parameter, used_here=used_here)
            self.average(gradient)


def wrap(model):
    return DataParallel(model, Pieces())
