"""What is trained is broadcast, and the frozen rest is each rank's own; buffers are left alone on purpose, as declared.

A class of mistake, of adapters (LoRA) beside a backbone: gradients are then means over different models. That
``sync_buffers=False`` is said of statistics says nothing of frozen weights.
"""

from __future__ import annotations

import torch
import torch.distributed as dist
from torch import nn

from ddp_core import Contract

ATTRIBUTE = "Trained"
TRIPS = {"LS002"}
CAUSE = "no_initial_broadcast"


class Trained(nn.Module):
    contract = Contract(sync_buffers=False, disclaims={"unused_parameters", "sparse_gradients"})

    def __init__(self, module):
        super().__init__()
        self.module = module
        self.trained = [parameter for parameter in module.parameters() if parameter.requires_grad]
        for parameter in self.trained:
            whole = parameter.detach().contiguous()
            dist.broadcast(whole, 0)
            parameter.data.copy_(whole)

    def forward(self, *inputs, **named):
        return self.module(*inputs, **named)

    def finish_gradient_synchronization(self):
        for parameter in self.trained:
            mine = torch.zeros_like(parameter) if parameter.grad is None else parameter.grad
            parameter.grad = mine.contiguous()
            dist.all_reduce(parameter.grad)
            parameter.grad /= dist.get_world_size()
