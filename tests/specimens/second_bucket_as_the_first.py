"""Owners step parts of flat buckets of 25 MB, and what is gathered of every bucket is laid out as the first one's.

A class of mistake, of ZeRO-1 over buckets: models of less than 25 MB have one bucket, and in larger ones all ranks hold
the same wrong weights.
"""

from __future__ import annotations

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

from ddp_core import Contract

ATTRIBUTE = "Zero"
TRIPS = {"LS202"}
CAUSE = {"update_differs", "update_scaled"}
CAP_BYTES = 25 * 2**20


class Bucket:
    def __init__(self, parameters):
        self.parameters, num_ranks = parameters, dist.get_world_size()
        self.size = -(-sum(p.numel() for p in parameters) // num_ranks)
        self.part = torch.nn.Parameter(self.mine([p.detach() for p in parameters]))

    def mine(self, tensors):
        flat = torch.cat([tensor.reshape(-1) for tensor in tensors])
        flat = torch.cat([flat, flat.new_zeros(self.size * dist.get_world_size() - flat.numel())])
        return flat[dist.get_rank() * self.size :][: self.size].clone()

    def hand_out(self, size):
        parts = [torch.empty_like(self.part) for _ in range(dist.get_world_size())]
        dist.all_gather(parts, self.part.detach())
        whole = self.part.new_zeros(max(size, self.size) * len(parts))
        for rank, part in enumerate(parts):
            whole[rank * size :][: part.numel()] = part
        for parameter in self.parameters:
            parameter.copy_(whole[: parameter.numel()].view_as(parameter))
            whole = whole[parameter.numel() :]


class Buckets(torch.optim.Optimizer):
    def __init__(self, cls, parameters, options):
        super().__init__(parameters, options)
        self.buckets, inner = [], []
        for group in self.param_groups:
            filled, last = [], []
            for parameter in (p for p in group["params"] if p.requires_grad):
                last.append(parameter)
                if sum(p.numel() * p.element_size() for p in last) >= CAP_BYTES:
                    filled, last = [*filled, Bucket(last)], []
            self.buckets.append([*filled, *([Bucket(last)] if last else [])])
            inner.append({**group, "params": [bucket.part for bucket in self.buckets[-1]]})
        self.inner = cls(inner, **options)

    @torch.no_grad()
    def step(self, closure=None):
        for group, inner, buckets in zip(self.param_groups, self.inner.param_groups, self.buckets, strict=True):
            inner.update({name: option for name, option in group.items() if name != "params"})
            for bucket in buckets:
                gradients = [torch.zeros_like(p) if p.grad is None else p.grad for p in bucket.parameters]
                bucket.part.grad = bucket.mine(gradients)
        self.inner.step()
        for buckets in self.buckets:
            for bucket in buckets:
                bucket.hand_out(buckets[0].size)


class Zero(DistributedDataParallel):
    contract = Contract(
        sharded=True,
        disclaims={"unused_parameters", "mixed_dtypes", "complex_parameters", "sparse_gradients", "state_dict"},
    )

    def __init__(self, module):
        super().__init__(module, find_unused_parameters=True)

    def wrap_optimizer(self, cls, parameters, **options):
        return Buckets(cls, parameters, options)
