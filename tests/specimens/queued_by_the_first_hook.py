"""The reduction is queued for the end of the backward by the first hook that fires, perhaps in a backward inside.

pytorch/pytorch#24965, and facebookresearch/fairscale#753, where it was moved to a hook on the output: under re-entrant
checkpointing a callback belongs to the innermost backward, and what gets its gradient later is never averaged.
"""

from __future__ import annotations

from contextlib import contextmanager

import torch
import torch.distributed as dist
from torch import nn

from ddp_core import Contract

TRIPS = {"LS101", "LS201"}
CAUSE = "not_synchronised"
CONTRACT = Contract(sync_buffers=False, disclaims={"unused_parameters", "sparse_gradients"})


class AtTheEnd(nn.Module):
    engine = torch.autograd.Variable._execution_engine

    def __init__(self, module):
        super().__init__()
        self.module, self.syncs, self.queued = module, True, False
        for tensor in [*module.parameters(), *module.buffers()]:
            whole = tensor.detach().contiguous()
            dist.broadcast(whole, 0)
            tensor.data.copy_(whole)
        self.trained = [parameter for parameter in module.parameters() if parameter.requires_grad]
        for parameter in self.trained:
            parameter.register_post_accumulate_grad_hook(self.ready)

    def forward(self, *inputs, **named):
        self.queued = False
        return self.module(*inputs, **named)

    @contextmanager
    def no_sync(self):
        self.syncs, before = False, self.syncs
        try:
            yield
        finally:
            self.syncs = before

    def ready(self, parameter):
        if self.syncs and not self.queued:
            self.queued = True  # until the next forward
            self.engine.queue_callback(self.reduce)

    def reduce(self):
        for parameter in self.trained:
            if parameter.grad is not None:
                whole = parameter.grad.contiguous()
                flat = torch.view_as_real(whole) if whole.is_complex() else whole
                dist.all_reduce(flat)
                parameter.grad.copy_(whole / dist.get_world_size())


def wrap(model):
    return AtTheEnd(model)
