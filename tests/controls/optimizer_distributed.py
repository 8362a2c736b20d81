"""Horovod's call: an optimizer goes in, with the names of its parameters, and one that is not torch's comes out."""

from __future__ import annotations

import torch
import torch.distributed as dist

from ddp_core import Contract

DRIVER = "distributed_optimizer"
CONTRACT = Contract(sync_buffers=False, disclaims={"sparse_gradients"})


def mean_of_gradients(parameters):
    """Of what some rank has used; zeros are what the others have of that."""
    due = [p for p in parameters if p.requires_grad]
    used = torch.tensor([int(p.grad is not None) for p in due], device=due[0].device)
    dist.all_reduce(used)
    for parameter, number in zip(due, used.tolist(), strict=True):
        if number:
            whole = torch.zeros_like(parameter) if parameter.grad is None else parameter.grad
            parameter.grad = whole.clone(memory_format=torch.contiguous_format)
            dist.all_reduce(parameter.grad)
            parameter.grad /= dist.get_world_size()


class DistributedOptimizer:
    def __init__(self, optimizer, named_parameters):
        self._optimizer = optimizer
        self._parameters = [parameter for _, parameter in named_parameters]

    @property
    def param_groups(self):
        return self._optimizer.param_groups

    def zero_grad(self):
        self._optimizer.zero_grad()

    def step(self):
        mean_of_gradients(self._parameters)
        self._optimizer.step()

    def state_dict(self):
        return self._optimizer.state_dict()

    def load_state_dict(self, saved):
        self._optimizer.load_state_dict(saved)


def wrap(optimizer, named_parameters):
    return DistributedOptimizer(optimizer, named_parameters)
