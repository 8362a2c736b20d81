"""Owners step their parameters and broadcast them without waiting: the next forward, or a save, waits for them.

As sharded optimizers do that hide their last collective behind what follows.
"""

from __future__ import annotations

import torch
import torch.distributed as dist

from ddp_core import Contract, Driver

DRIVER = "native"
CONTRACT = Contract(sync_buffers=False, disclaims={"sparse_gradients"})


class OnTheirWay(Driver):
    def prepare(self, model):
        self.under_way = []
        for tensor in [*model.parameters(), *model.buffers()]:
            whole = tensor.detach().contiguous()
            dist.broadcast(whole, src=0)
            tensor.data.copy_(whole)
        return model

    def before_step(self):
        parameters = [p for _, p in self.named_parameters() if p.requires_grad]
        used = torch.tensor([int(p.grad is not None) for p in parameters], device=parameters[0].device)
        dist.all_reduce(used)
        for parameter, number in zip(parameters, used.tolist(), strict=True):
            if number:
                mine = torch.zeros_like(parameter) if parameter.grad is None else parameter.grad
                parameter.grad = mine.contiguous() / dist.get_world_size()
                dist.all_reduce(parameter.grad)

    def make_optimizer(self, cls, parameters, **options):
        self.owned = [(p, number % dist.get_world_size()) for number, p in enumerate(parameters)]
        return cls([p for p, owner in self.owned if owner == dist.get_rank()], **options)

    def zero_grad(self, optimizer, *, set_to_none=True):
        self.model.zero_grad(set_to_none=set_to_none)

    def step(self, optimizer):
        optimizer.step()
        for parameter, owner in self.owned:
            flat = parameter.detach().contiguous()  # the parameter's own memory, where that lies in one piece
            self.under_way.append((dist.broadcast(flat, owner, async_op=True), flat, parameter))

    def wait(self):
        for work, flat, parameter in self.under_way:
            work.wait()
            parameter.data.copy_(flat)
        self.under_way.clear()

    def forward(self, *inputs):
        self.wait()
        return self.model(*inputs)

    def state_dict(self):
        self.wait()
        return self.model.state_dict()


def wrap(model):
    return OnTheirWay(model)
