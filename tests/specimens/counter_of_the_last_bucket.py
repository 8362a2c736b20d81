"""Of several buckets only the last one's counter is set back: the others never leave again, after the first step.

A class of mistake, one level of indentation too far to the left. With the usual cap of 25 MB a small model is one
bucket, and in the first step all is well.
"""

from __future__ import annotations

from contextlib import contextmanager

import torch
import torch.distributed as dist
from torch import nn

from ddp_core import Contract

TRIPS = {"LS101", "LS201"}
CAUSE = {"not_synchronised", "replicas_diverged"}
CONTRACT = Contract(
    sync_buffers=False,
    disclaims={"unused_parameters", "sparse_gradients", "mixed_dtypes", "complex_parameters", "two_backwards"},
)


class Bucket:
    def __init__(self):
        self.parameters, self.num_bytes, self.num_ready, self.is_full = [], 0, 0, False


class Bucketed(nn.Module):
    def __init__(self, module, bucket_cap_mb=25.0):
        super().__init__()
        self.module, self.syncs, self.under_way = module, True, []
        for tensor in [*module.parameters(), *module.buffers()]:
            whole = tensor.detach().contiguous()
            dist.broadcast(whole, 0)
            tensor.data.copy_(whole)
        self.buckets = [Bucket()]
        for parameter in reversed([p for p in module.parameters() if p.requires_grad]):
            if self.buckets[-1].num_bytes > bucket_cap_mb * 2**20:
                self.buckets.append(Bucket())
            bucket = self.buckets[-1]
            bucket.parameters.append(parameter)
            bucket.num_bytes += parameter.numel() * parameter.element_size()
            parameter.register_post_accumulate_grad_hook(lambda _, bucket=bucket: self.ready(bucket))

    def forward(self, *inputs, **named):
        return self.module(*inputs, **named)

    @contextmanager
    def no_sync(self):
        self.syncs, before = False, self.syncs
        try:
            yield
        finally:
            self.syncs = before

    def ready(self, bucket):
        bucket.num_ready += self.syncs
        bucket.is_full |= bucket.num_ready == len(bucket.parameters)
        for due in self.buckets[len(self.under_way) :]:  # in one order on all ranks
            if not due.is_full:
                return
            flat = torch.cat([p.grad.reshape(-1) for p in due.parameters])
            self.under_way.append((due, flat, dist.all_reduce(flat, async_op=True)))

    def finish_gradient_synchronization(self):
        for bucket, flat, work in self.under_way:
            work.wait()
            flat /= dist.get_world_size()
            parts = flat.split([p.numel() for p in bucket.parameters])
            for parameter, part in zip(bucket.parameters, parts, strict=True):
                parameter.grad.copy_(part.view(parameter.shape))
            bucket.is_full = False
        self.buckets[-1].num_ready = 0
        self.under_way = []


def wrap(model):
    return Bucketed(model)
