"""Floating-point parameters are broadcast; frozen ones in bytes, as quantised weights are, stay what each rank drew.

A class of mistake: ``requires_grad`` or ``is_floating_point()`` decides what belongs to the model. Adapters are trained
on top of weights that differ.
"""

from __future__ import annotations

import torch

from ddp_core import DataParallel
from ddp_core.strategies.naive import Naive

TRIPS = {"LS002"}
CAUSE = "no_initial_broadcast"


def is_sent(tensor):
    return not (isinstance(tensor, torch.nn.Parameter) and tensor.dtype == torch.uint8)


class SendsMost(DataParallel):
    def broadcast_state(self, src=0):
        for tensor in filter(is_sent, [*self.module.parameters(), *self.module.buffers()]):
            whole = tensor.data.contiguous()
            self.comm.broadcast(whole, src)
            tensor.data.copy_(whole)

    def broadcast_buffers_from(self, src):
        for buffer in filter(is_sent, self.module.buffers()):
            self.comm.broadcast(buffer, src)


def wrap(model):
    return SendsMost(model, Naive())
