"""Each backward's *increment* is averaged as it arrives, so what accumulated under ``no_sync`` never is.

A class of mistake: a hook on the tensor (``Tensor.register_hook``) sees this backward's gradient, not what ``.grad``
has accumulated (torch's DDP reduces ``.grad``). Replicas diverge, and only with accumulation.
"""

from __future__ import annotations

import torch

from ddp_core import DataParallel
from ddp_core.strategies.naive import Naive

TRIPS = {"LS101", "LS201"}
CAUSE = "last_micro_batch_only"


class Increments(DataParallel):
    def forward(self, *inputs):
        if self.synchronises:
            self.kept = {p: p.grad for p in self.module.parameters() if p.grad is not None}
            for parameter in self.kept:
                parameter.grad = None
        return super().forward(*inputs)

    def _backward_over(self):
        synchronised = self._gradients_seen
        super()._backward_over()
        if synchronised:
            with torch.no_grad():
                for parameter, accumulated in self.kept.items():
                    new = parameter.grad
                    parameter.grad = accumulated if new is None else new + accumulated
            self.kept = {}


def wrap(model):
    return Increments(model, Naive())
