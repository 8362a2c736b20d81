"""A step is left out where one rank met an infinity and taken where all did: flags are added up and compared with one.

A class of mistake: a scaler of two devices that asks ``found == 1`` instead of ``found > 0``. It is right on one card,
right while infinities are rare, and wrong in the step in which every rank overflows, which a scale that is too large
begins with.
"""

from __future__ import annotations

import torch
import torch.distributed as dist

from ddp_core import Contract

TRIPS = {"LS202"}
CAUSE = "taken_from_all"
CONTRACT = Contract(sync_buffers=False, disclaims={"unused_parameters", "sparse_gradients"})


class Scaler:
    def __init__(self, optimizer):
        self.optimizer = optimizer

    def __getattr__(self, name):
        return getattr(self.optimizer, name)

    def step(self, closure=None):
        gradients = [p.grad for group in self.optimizer.param_groups for p in group["params"] if p.grad is not None]
        met = torch.tensor(int(not all(gradient.isfinite().all() for gradient in gradients)))
        dist.all_reduce(met)
        for gradient in gradients:
            dist.all_reduce(gradient)
            gradient /= dist.get_world_size()
        if met != 1:
            self.optimizer.step()


def wrap(optimizer, model):
    for tensor in model.state_dict().values():
        dist.broadcast(tensor, src=0)
    return Scaler(optimizer)
