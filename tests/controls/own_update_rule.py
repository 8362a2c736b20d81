"""Muon under DDP, for matrices, with steps along the sign elsewhere: owners orthogonalise whole matrices and hand out.

The loop asks for SGD or AdamW and gets another rule; a single process would have what this comes to on one rank.
"""

from __future__ import annotations

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

from ddp_core import Contract, Driver

ATTRIBUTE = "OwnRule"
DRIVER = "native"
NUM_ITERATIONS = 5


def orthogonalised(matrix):
    """The nearest matrix whose singular values are all about 1, by Newton's iteration in the matrix itself."""
    x = matrix / (torch.linalg.matrix_norm(matrix) + 1e-9)
    for _ in range(NUM_ITERATIONS):
        x = 1.5 * x - 0.5 * x @ x.mH @ x
    return x


class Muon(torch.optim.Optimizer):
    @torch.no_grad()
    def step(self, closure=None):
        for group in self.param_groups:
            for place, parameter in enumerate(group["params"]):
                owner = place % dist.get_world_size()
                if parameter.grad is not None and owner == dist.get_rank():
                    self.update(parameter, group["lr"])
                whole = parameter.data.contiguous()
                dist.broadcast(whole, owner)
                parameter.data.copy_(whole)

    def update(self, parameter, lr):
        gradient = parameter.grad.to_dense() if parameter.grad.is_sparse else parameter.grad
        momentum = self.state[parameter].setdefault("momentum", torch.zeros_like(parameter))
        momentum.mul_(0.9).add_(gradient)
        step = orthogonalised(momentum) if parameter.ndim == 2 else momentum.sgn()
        parameter.sub_(lr * step)


class OwnRule(Driver):
    contract = Contract(sharded=True, disclaims={"state_dict"})

    def prepare(self, model):
        return DistributedDataParallel(model, find_unused_parameters=True)

    def make_optimizer(self, cls, parameters, *, lr, **options):
        return Muon(parameters, {"lr": lr})
