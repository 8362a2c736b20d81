"""The hook reduces the parameter, not the gradient (huggingface/picotron issue #39).

https://github.com/huggingface/picotron/issues/39: the naive wrapper of a teaching framework registers
``register_post_accumulate_grad_hook`` with a function whose argument is called ``grad``. What the hook is handed is the
*parameter*. So weights are averaged over ranks during backward, every rank steps on its own local gradient, and no
error is raised. The wrapper relies on equal seeds for an equal start; this rebuild broadcasts instead, so that one
mistake is shown and not two.
"""

from __future__ import annotations

from contextlib import contextmanager

import torch.distributed as dist
from torch import nn

TRIPS = {"LS101", "LS201", "LS301"}
CAUSE = "not_synchronised"


class NaiveDataParallel(nn.Module):
    def __init__(self, module):
        super().__init__()
        self.module = module
        self.sync_now = True
        for tensor in module.state_dict().values():
            dist.broadcast(tensor, src=0)
        for parameter in module.parameters():
            if parameter.requires_grad:
                parameter.register_post_accumulate_grad_hook(self.average_over_ranks)

    def forward(self, *inputs):
        for buffer in self.module.buffers():
            dist.broadcast(buffer.data, src=0)
        return self.module(*inputs)

    def average_over_ranks(self, grad):  # torch passes the parameter here
        if self.sync_now:
            dist.all_reduce(grad.data)
            grad.data /= dist.get_world_size()

    @contextmanager
    def no_sync(self):
        self.sync_now = False
        try:
            yield
        finally:
            self.sync_now = True


def wrap(model):
    return NaiveDataParallel(model)
