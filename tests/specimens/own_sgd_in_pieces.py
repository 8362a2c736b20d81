"""A driver brings SGD of its own, which steps large weights in pieces and forgets what the last whole one leaves.

A class of mistake, of fused and sharded optimizers: the number of pieces is rounded down. All that is smaller than a
piece is right, and so is what has a whole number of them.
"""

from __future__ import annotations

import torch
import torch.distributed as dist

from ddp_core import Contract, Driver

ATTRIBUTE = "Own"
TRIPS = {"LS202"}
CAUSE = "not_stepped"
PIECE = 2**20


class InPieces(torch.optim.Optimizer):
    def __init__(self, params, lr, momentum=0.0, weight_decay=0.0):
        super().__init__(params, {"lr": lr, "momentum": momentum, "weight_decay": weight_decay})

    @torch.no_grad()
    def step(self, closure=None):
        for group in self.param_groups:
            for parameter in group["params"]:
                if parameter.grad is not None:
                    self.step_one(parameter, group)

    def step_one(self, parameter, group):
        direction = parameter.grad.add(parameter, alpha=group["weight_decay"])
        if group["momentum"]:
            state = self.state[parameter]
            if "momentum_buffer" in state:
                direction = state["momentum_buffer"].mul_(group["momentum"]).add_(direction)
            else:
                state["momentum_buffer"] = direction = direction.clone()
        after, flat = parameter.detach().flatten().clone(), direction.flatten()
        for number in range(max(parameter.numel() // PIECE, 1)):
            piece = slice(number * PIECE, (number + 1) * PIECE)
            after[piece] -= group["lr"] * flat[piece]
        parameter.copy_(after.view(parameter.shape))


class Own(Driver):
    contract = Contract(sync_buffers=False, disclaims={"unused_parameters", "sparse_gradients"})

    def prepare(self, model):
        for tensor in [*model.parameters(), *model.buffers()]:
            whole = tensor.detach().contiguous()
            dist.broadcast(whole, 0)
            tensor.data.copy_(whole)
        return model

    def make_optimizer(self, cls, parameters, **options):
        return InPieces(parameters, **options) if cls is torch.optim.SGD else cls(parameters, **options)

    def before_step(self):
        for _, parameter in self.named_parameters():
            if parameter.requires_grad:
                whole = parameter.grad.contiguous()
                flat = torch.view_as_real(whole) if whole.is_complex() else whole
                dist.all_reduce(flat)
                parameter.grad.copy_(whole / dist.get_world_size())
