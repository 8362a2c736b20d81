"""Matrices of one shape travel in chunks, one matrix for each rank, which its owner makes orthogonal and hands out.

The last chunk is filled up with zeros, as in modded-nanogpt's Muon: few matrices on many ranks are then sent as many
times over, and no gradient travels twice.
"""

from __future__ import annotations

from collections import defaultdict

import torch
import torch.distributed as dist

from ddp_core import Contract, Driver

ATTRIBUTE = "Muon"
DRIVER = "native"


def orthogonalised(matrix):
    """By Newton and Schulz: the singular values come near 1, and those that are 0 stay that."""
    wide = matrix / (matrix.norm() + 1e-7)
    for _ in range(5):
        square = wide @ wide.T
        wide = 3.4445 * wide + (-4.7750 * square + 2.0315 * square @ square) @ wide
    return wide


class InChunks(torch.optim.Optimizer):
    def chunks(self, group):
        of_shape = defaultdict(list)
        for parameter in group["params"]:
            of_shape[parameter.shape, parameter.dtype].append(parameter)
        for alike in of_shape.values():
            for first in range(0, len(alike), dist.get_world_size()):
                yield alike[first : first + dist.get_world_size()]

    @torch.no_grad()
    def step(self, closure=None):
        for group in self.param_groups:
            for chunk in self.chunks(group):
                self.step_chunk(chunk, group["lr"])

    def step_chunk(self, chunk, lr):
        num_ranks, rank = dist.get_world_size(), dist.get_rank()
        shape = chunk[0].shape
        gradients = [torch.zeros_like(p) if p.grad is None else p.grad for p in chunk]
        filled = [g.contiguous() for g in gradients] + [chunk[0].new_zeros(shape)] * (num_ranks - len(chunk))
        mine, stepped = chunk[0].new_empty(shape), [chunk[0].new_empty(shape) for _ in filled]
        dist.reduce_scatter(mine, filled)
        if rank < len(chunk):
            mean = mine / num_ranks
            momentum = self.state[chunk[rank]].setdefault("momentum", torch.zeros_like(mean))
            momentum.mul_(0.5).add_(mean)
            update = orthogonalised(momentum) if momentum.ndim == 2 else momentum
            mine = chunk[rank].contiguous() - lr * update
        dist.all_gather(stepped, mine)
        for parameter, weight in zip(chunk, stepped, strict=False):
            parameter.copy_(weight)


class Muon(Driver):
    contract = Contract(
        sharded=True,
        optimizer="own",
        sync_buffers=False,
        disclaims={"sparse_gradients", "unused_parameters", "complex_parameters", "state_dict"},
    )
    can_clip = False

    def prepare(self, model):
        for tensor in [*model.parameters(), *model.buffers()]:
            whole = tensor.data.contiguous()
            dist.broadcast(whole, 0)
            tensor.data.copy_(whole)
        return model

    def make_optimizer(self, cls, parameters, **options):
        return InChunks(parameters, options)
