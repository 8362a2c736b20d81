"""Ranks agree to leave out a step that overflowed, and only the rank that saw the infinity lowers its loss scale.

A class of mistake: all replicas rest, and from then on weigh their gradients otherwise than they divide them.
"""

from __future__ import annotations

import torch
import torch.distributed as dist

from ddp_core import Contract

TRIPS = {"LS101"}
CAUSE = "replicas_diverged"
CONTRACT = Contract(sync_buffers=False, disclaims={"sparse_gradients", "clipping"})


class Engine:
    def __init__(self, module):
        self.module, self.optimizer, self.scale = module, None, 2.0**8
        for tensor in [*module.parameters(), *module.buffers()]:
            whole = tensor.detach().contiguous()
            dist.broadcast(whole, src=0)
            tensor.data.copy_(whole)

    def __call__(self, *inputs, **named):
        return self.module(*inputs, **named)

    def state_dict(self):
        return self.module.state_dict()

    def load_state_dict(self, saved):
        self.module.load_state_dict(saved)

    def backward(self, loss):
        (loss * self.scale).backward()

    def step(self):
        due = [p for p in self.module.parameters() if p.requires_grad]
        overflowed = any(p.grad is not None and not p.grad.isfinite().all() for p in due)
        anywhere = torch.tensor(float(overflowed), device=due[0].device)
        dist.all_reduce(anywhere)
        if anywhere:
            self.scale /= 2 if overflowed else 1
            return
        used = torch.tensor([int(p.grad is not None) for p in due], device=due[0].device)
        dist.all_reduce(used)
        for parameter, number in zip(due, used.tolist(), strict=True):
            if number:
                whole = torch.zeros_like(parameter) if parameter.grad is None else parameter.grad
                parameter.grad = whole.clone(memory_format=torch.contiguous_format)
                dist.all_reduce(parameter.grad)
                parameter.grad /= dist.get_world_size() * self.scale
        self.optimizer.step()


def wrap(model):
    return Engine(model)
