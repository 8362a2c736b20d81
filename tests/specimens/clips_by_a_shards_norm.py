"""An optimizer's own ``clip_grad_norm_()`` takes the norm of the gradients that this rank owns for the norm of all.

A class of mistake (facebookresearch/fairscale#98 and #167): each owner clips by another norm. Here the gradients are
reduced before, every rank clips its own share of them, and what it steps is broadcast: replicas agree.
"""

from __future__ import annotations

import torch
import torch.distributed as dist

TRIPS = {"LS103", "LS201"}
CAUSE = "clipped_otherwise"
ATTRIBUTE = "OwnersOptimizer"


class OwnersOptimizer:
    def __init__(self, optimizer):
        self.inside = optimizer
        self.everybody = [p for group in optimizer.param_groups for p in group["params"]]
        self.reduced = False

    @property
    def param_groups(self):
        return self.inside.param_groups

    @property
    def state(self):
        return self.inside.state

    def owned(self):
        return self.everybody[dist.get_rank() :: dist.get_world_size()]

    def zero_grad(self, set_to_none=True):
        self.inside.zero_grad(set_to_none)
        self.reduced = False

    def clip_grad_norm_(self, max_norm):
        self.reduce()
        return torch.nn.utils.clip_grad_norm_(self.owned(), max_norm)

    def reduce(self):
        used = torch.tensor([int(p.grad is not None) for p in self.everybody], device=self.everybody[0].device)
        dist.all_reduce(used)
        for parameter, number in zip(self.everybody, used.tolist(), strict=True):
            if number:
                mine = torch.zeros_like(parameter) if parameter.grad is None else parameter.grad
                mine = mine.to_dense() if mine.is_sparse else mine
                parameter.grad = mine.clone(memory_format=torch.contiguous_format) / dist.get_world_size()
                dist.all_reduce(parameter.grad)
        self.reduced = True

    def step(self):
        if not self.reduced:
            self.reduce()
        self.inside.step()
        for number, parameter in enumerate(self.everybody):
            whole = parameter.detach().contiguous()
            dist.broadcast(whole, number % dist.get_world_size())
            with torch.no_grad():
                parameter.copy_(whole)

    def state_dict(self):
        return self.inside.state_dict()

    def load_state_dict(self, saved):
        self.inside.load_state_dict(saved)
