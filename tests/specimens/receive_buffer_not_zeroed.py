"""New weights are received in the buffer of gradients, to save memory, and the backward adds to what is left there.

Source: https://github.com/NVIDIA/Megatron-LM/pull/4609
"""

from __future__ import annotations

import torch
import torch.distributed as dist

from ddp_core import Contract, Driver

DRIVER = "native"
TRIPS = {"LS201", "LS504"}
CAUSE = "weights_added"
CONTRACT = Contract(
    sharded=True,
    sync_buffers=False,
    disclaims={"sparse_gradients", "unused_parameters", "parameter_groups", "mixed_dtypes", "odd_parameters"},
)


class OneBufferForBoth(Driver):
    def prepare(self, model):
        for tensor in [*model.parameters(), *model.buffers()]:
            whole = tensor.detach().contiguous()
            dist.broadcast(whole, src=0)
            tensor.data.copy_(whole)
        trained = [p for p in model.parameters() if p.requires_grad]
        self.buffers = {p: torch.zeros_like(p, memory_format=torch.contiguous_format) for p in trained}
        self.owner = {p: number % dist.get_world_size() for number, p in enumerate(trained)}
        self.stale = False
        return model

    def fetch(self):
        if self.stale:
            for parameter, buffer in self.buffers.items():
                buffer.copy_(parameter.detach())
                dist.broadcast(buffer, self.owner[parameter])
                parameter.data.copy_(buffer)  # and the buffer is not zeroed
            self.stale = False

    def forward(self, *inputs):
        self.fetch()
        return self.model(*inputs)

    def backward(self, loss):
        loss.backward()
        for parameter, buffer in self.buffers.items():
            buffer += parameter.grad
            parameter.grad = None

    def before_step(self):
        for parameter, buffer in self.buffers.items():
            buffer /= dist.get_world_size()
            dist.all_reduce(buffer)
            parameter.grad = buffer

    def make_optimizer(self, cls, parameters, **options):
        return cls([p for p in parameters if self.owner.get(p) == dist.get_rank()], **options)

    def zero_grad(self, optimizer, *, set_to_none=True):
        for parameter, buffer in self.buffers.items():
            buffer.zero_()
            parameter.grad = None

    def step(self, optimizer):
        optimizer.step()
        self.stale = True

    def state_dict(self):
        self.fetch()
        return self.model.state_dict()

    def load_state_dict(self, saved):
        self.fetch()
        self.model.load_state_dict(saved)


def wrap(model):
    return OneBufferForBoth(model)
