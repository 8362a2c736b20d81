"""Each rank orthogonalises the rows that it owns of a matrix, as if that were the whole.

KellerJordan/Muon#45 asks what becomes of a matrix that is sharded: the step is that of the whole, and parts taken one
by one give another. All replicas agree on it, and the loss falls.
"""

from __future__ import annotations

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

from ddp_core import Contract, Driver

ATTRIBUTE = "Sliced"
TRIPS = {"LS202"}
CAUSE = None


class SlicedMuon(torch.optim.Optimizer):
    @torch.no_grad()
    def step(self, closure=None):
        for group in self.param_groups:
            for parameter in group["params"]:
                if parameter.grad is not None:
                    step = self.in_slices(parameter.grad) if parameter.ndim == 2 else parameter.grad
                    parameter.sub_(step, alpha=group["lr"])

    def in_slices(self, gradient):
        step, world_size = gradient.clone(memory_format=torch.contiguous_format), dist.get_world_size()
        for owner in range(world_size):
            first, last = (len(step) * n // world_size for n in (owner, owner + 1))
            if first == last:
                continue
            rows = step[first:last].clone()
            if owner == dist.get_rank():
                left, _, right = torch.linalg.svd(rows, full_matrices=False)
                rows = left @ right
            dist.broadcast(rows, owner)
            step[first:last] = rows
        return step


class Sliced(Driver):
    contract = Contract(sharded=True, disclaims={"sparse_gradients", "strided_parameters"})

    def prepare(self, model):
        return DistributedDataParallel(model, find_unused_parameters=True)

    def make_optimizer(self, cls, parameters, *, lr, **options):
        return SlicedMuon(parameters, {"lr": lr})
