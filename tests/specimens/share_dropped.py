"""A rank that finds one of its gradients not finite brings zeros for all of them: its share is gone, and nobody knows.

A class of mistake, of loops that guard against spikes before the ranks have met. The step is taken by what the others
have, divided by all, and no loss scaler hears that its scale is too large.
"""

from __future__ import annotations

import torch
import torch.distributed as dist

from ddp_core import Contract, Driver

TRIPS = {"LS202"}
CAUSE = "infinity_hidden"
CONTRACT = Contract(sync_buffers=False, disclaims={"sparse_gradients"})


class DropsItsShare(Driver):
    def prepare(self, model):
        for tensor in [*model.parameters(), *model.buffers()]:
            whole = tensor.detach().contiguous()
            dist.broadcast(whole, src=0)
            tensor.data.copy_(whole)
        return model

    def before_step(self):
        trained = [p for _, p in self.named_parameters() if p.requires_grad]
        used = torch.tensor([int(p.grad is not None) for p in trained])
        dist.all_reduce(used)
        good = all(bool(torch.isfinite(p.grad).all()) for p in trained if p.grad is not None)
        for parameter, number in zip(trained, used.tolist(), strict=True):
            if number:
                mine = parameter.grad if good and parameter.grad is not None else torch.zeros_like(parameter)
                parameter.grad = mine.contiguous() / dist.get_world_size()
                dist.all_reduce(parameter.grad)


wrap = DropsItsShare
