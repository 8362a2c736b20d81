"""Gradients that no rank has used in a step are set to None, also where ``zero_grad()`` was to leave zeros.

pytorch/pytorch#28294: momentum and weight decay go on in a single process, and stop here.
"""

from __future__ import annotations

import torch
import torch.distributed as dist

from ddp_core import Contract, Driver

TRIPS = {"LS202"}
CAUSE = "zero_taken_for_none"
CONTRACT = Contract(sync_buffers=False, disclaims={"sparse_gradients", "accumulation", "two_backwards"})


class Drops(Driver):
    def prepare(self, model):
        for tensor in [*model.parameters(), *model.buffers()]:
            whole = tensor.detach().contiguous()
            dist.broadcast(whole, src=0)
            tensor.data.copy_(whole)
        self.trained, self.used = [p for p in model.parameters() if p.requires_grad], set()
        for parameter in self.trained:
            parameter.register_post_accumulate_grad_hook(self.used.add)
        return model

    def before_step(self):
        used = torch.tensor([int(p in self.used) for p in self.trained], device=self.trained[0].device)
        dist.all_reduce(used)
        for parameter, number in zip(self.trained, used.tolist(), strict=True):
            if not number:
                parameter.grad = None
                continue
            whole = (torch.zeros_like(parameter) if parameter.grad is None else parameter.grad).contiguous()
            dist.all_reduce(whole)
            parameter.grad = torch.empty_like(parameter).copy_(whole / dist.get_world_size())
        self.used.clear()


wrap = Drops
