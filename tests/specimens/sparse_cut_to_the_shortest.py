"""Sparse gradients are gathered, and all ranks send as many entries as the one with the fewest has.

A class of mistake: a gather wants equal sizes, and cutting is easier than padding. Where sentences are of several
lengths, some of their words teach nothing.
"""

from __future__ import annotations

import torch
import torch.distributed as dist

from ddp_core import Contract

TRIPS = {"LS201"}
CAUSE = None
CONTRACT = Contract(sync_buffers=False)


def mean_of_sparse(gradient):
    indices, values, world_size = gradient._indices(), gradient._values(), dist.get_world_size()
    num_entries = torch.tensor(indices.shape[1], device=values.device)
    dist.all_reduce(num_entries, op=dist.ReduceOp.MIN)
    indices, values = indices[:, :num_entries].contiguous(), values[:num_entries].contiguous()
    all_indices = [torch.empty_like(indices) for _ in range(world_size)]
    all_values = [torch.empty_like(values) for _ in range(world_size)]
    dist.all_gather(all_indices, indices)
    dist.all_gather(all_values, values)
    return torch.sparse_coo_tensor(torch.cat(all_indices, 1), torch.cat(all_values) / world_size, gradient.shape)


class Gathers(torch.nn.Module):
    def __init__(self, module):
        super().__init__()
        self.module = module
        for tensor in [*module.parameters(), *module.buffers()]:
            whole = tensor.detach().contiguous().clone()
            dist.broadcast(whole, 0)
            tensor.data.copy_(whole)

    def forward(self, *inputs, **named):
        return self.module(*inputs, **named)

    def sync_gradients(self):
        for parameter in [p for p in self.module.parameters() if p.requires_grad]:
            gradient = parameter.grad
            having = torch.zeros(2, dtype=torch.long, device=parameter.device)
            having[0], having[1] = gradient is not None, gradient is not None and gradient.is_sparse
            dist.all_reduce(having)
            if having[1] == dist.get_world_size():
                parameter.grad = mean_of_sparse(gradient)
            elif having[0]:
                mine = torch.zeros_like(parameter) if gradient is None else gradient.to_dense()
                whole = mine.clone(memory_format=torch.contiguous_format)
                dist.all_reduce(whole)
                parameter.grad = torch.empty_like(parameter).copy_(whole / dist.get_world_size())


def wrap(model):
    return Gathers(model)
