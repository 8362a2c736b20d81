"""``backward(loss)`` divides the loss by the world size, and ``sync_gradients()`` adds up: a loop has to call both."""

from __future__ import annotations

import torch.distributed as dist
from torch import nn

from ddp_core import Contract

ATTRIBUTE = "SharesOut"
DRIVER = "explicit"


class SharesOut(nn.Module):
    contract = Contract(sync_buffers=False, disclaims={"sparse_gradients", "unused_parameters", "state_dict"})

    def __init__(self, module):
        super().__init__()
        self.module = module
        for tensor in [*module.parameters(), *module.buffers()]:
            whole = tensor.detach().contiguous()
            dist.broadcast(whole, 0)
            tensor.data.copy_(whole)

    def forward(self, *inputs):
        return self.module(*inputs)

    def backward(self, loss):
        (loss / dist.get_world_size()).backward()

    def sync_gradients(self):
        for parameter in self.module.parameters():
            if parameter.grad is not None:
                parameter.grad = parameter.grad.contiguous()
                dist.all_reduce(parameter.grad)
