"""An optimizer for each rank's share, built as torch's ZeRO-1 is: somebody else reduces gradients."""

from __future__ import annotations

import torch
import torch.distributed as dist

from ddp_core import Contract

ATTRIBUTE = "ShardedOptimizer"
DRIVER = "sharded_optimizer"
CONTRACT = Contract(sharded=True, disclaims={"sparse_gradients"})


class ShardedOptimizer(torch.optim.Optimizer):
    def __init__(self, params, optimizer_cls, **options):
        super().__init__(params, options)
        self.owners, mine = {}, []
        for group in self.param_groups:
            for parameter in group["params"]:
                self.owners[parameter] = len(self.owners) % dist.get_world_size()
            kept = [p for p in group["params"] if self.owners[p] == dist.get_rank()]
            mine.append({**group, "params": kept})
        self.inner = optimizer_cls(mine, **options)

    @torch.no_grad()
    def step(self, closure=None):
        for whole, mine in zip(self.param_groups, self.inner.param_groups, strict=True):
            mine.update({name: value for name, value in whole.items() if name != "params"})
        self.inner.step()
        for parameter, owner in self.owners.items():
            weights = parameter.detach().contiguous()
            dist.broadcast(weights, src=owner)
            parameter.copy_(weights)

    def state_dict(self):
        options = [{n: value for n, value in group.items() if n != "params"} for group in self.param_groups]
        return {"options": options, "inner": self.inner.state_dict()}

    def load_state_dict(self, saved):
        for group, options in zip(self.param_groups, saved["options"], strict=True):
            group.update(options)
        self.inner.load_state_dict(saved["inner"])
