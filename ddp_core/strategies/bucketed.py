"""Asynchronous all-reduces of a few large buckets, launched while backward is still running.

Special here: what travels together, and in which order, is fixed on every rank before the first backward.
Gradients become ready in an order that may legally differ from rank to rank (a branch taken by the data, a
parameter unused here); a bucket leaves only when it is complete *and* all buckets before it in the plan have
left. A rank that is ready early waits its turn, so n-th collective means the same parameters everywhere.

Mechanism and defaults after Li et al., "PyTorch Distributed: Experiences on Accelerating Data Parallel Training",
VLDB 2020 (https://arxiv.org/abs/2006.15704).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import nn

from ddp_core.buckets import MB, BucketPlan, Gradient, plan_buckets
from ddp_core.comm import Comm, Pending
from ddp_core.strategy import Strategy
from ddp_core.wrapper import DataParallel


class Bucket:
    """A flat buffer, made once, and the views of it that stand for each parameter's gradient."""

    def __init__(self, plan: BucketPlan, parameters: Sequence[nn.Parameter]) -> None:
        self.plan = plan
        self.parameters = [parameters[slot.index] for slot in plan.slots]
        self.buffer = torch.empty(plan.numel, dtype=self.parameters[0].dtype, device=self.parameters[0].device)
        self.views = [
            self.buffer[slot.offset : slot.offset + slot.numel].view(parameter.shape)
            for slot, parameter in zip(plan.slots, self.parameters, strict=True)
        ]
        self.num_waiting = len(self.parameters)
        self.work: Pending | None = None

    def fill(self) -> None:
        """Copy this rank's gradients in; zeros where this rank did not use a parameter."""
        for parameter, view in zip(self.parameters, self.views, strict=True):
            view.zero_() if parameter.grad is None else view.copy_(parameter.grad)

    def hand_out(self) -> None:
        """Copy the buffer's contents to the parameters' gradients."""
        for parameter, view in zip(self.parameters, self.views, strict=True):
            if parameter.grad is None:
                parameter.grad = torch.empty_like(parameter, memory_format=torch.preserve_format)
            parameter.grad.copy_(view)


class Bucketed(Strategy):
    """Bucketed, overlapped all-reduce. Caps are in MB of 2**20 bytes."""

    def __init__(self, bucket_cap_mb: float = 25.0, first_bucket_cap_mb: float = 1.0) -> None:
        for name, value in (("bucket_cap_mb", bucket_cap_mb), ("first_bucket_cap_mb", first_bucket_cap_mb)):
            if not value > 0:
                raise ValueError(f"{name} must be greater than 0, got {value!r}")
        self.bucket_cap_mb, self.first_bucket_cap_mb = bucket_cap_mb, first_bucket_cap_mb
        self.buckets: list[Bucket] = []

    def prepare(self, named_parameters: Sequence[tuple[str, nn.Parameter]], comm: Comm) -> None:
        super().prepare(named_parameters, comm)
        gradients = [
            Gradient(name, p.numel(), p.numel() * p.element_size(), (str(p.dtype), str(p.device)))
            for name, p in named_parameters
        ]
        cap, first_cap = int(self.bucket_cap_mb * MB), int(self.first_bucket_cap_mb * MB)
        plans = plan_buckets(gradients, cap_bytes=max(cap, 1), first_cap_bytes=max(first_cap, 1))
        self.buckets = [Bucket(plan, self.parameters) for plan in plans]
        self._bucket_of = {id(p): bucket for bucket in self.buckets for p in bucket.parameters}
        self._num_launched = 0

    def backward_started(self) -> None:
        self._num_launched = 0
        self._ready: set[int] = set()
        for bucket in self.buckets:
            bucket.num_waiting, bucket.work = len(bucket.parameters), None

    def gradient_ready(self, parameter: nn.Parameter) -> None:
        if id(parameter) in self._ready:
            return
        self._ready.add(id(parameter))
        self._bucket_of[id(parameter)].num_waiting -= 1
        while self._num_launched < len(self.buckets) and self.buckets[self._num_launched].num_waiting == 0:
            self.launch_next()

    def launch_next(self) -> None:
        """Send the next bucket of the plan on its way."""
        bucket = self.buckets[self._num_launched]
        self._num_launched += 1
        with torch.no_grad():
            bucket.fill()
        bucket.work = self.comm.all_reduce_async(bucket.buffer)

    def backward_done(self) -> None:
        while self._num_launched < len(self.buckets):  # buckets with a parameter that this rank did not use
            self.launch_next()
        for bucket in self.buckets:
            assert bucket.work is not None
            bucket.work.wait()
            self.average(bucket.buffer)
            bucket.hand_out()

    def plan(self) -> list[list[str]]:
        """Parameter names by bucket, in launch order: the same on every rank."""
        return [[slot.name for slot in bucket.plan.slots] for bucket in self.buckets]

    def __repr__(self) -> str:
        return f"Bucketed(bucket_cap_mb={self.bucket_cap_mb:g}, first_bucket_cap_mb={self.first_bucket_cap_mb:g})"


def wrap(
    model: nn.Module, *, bucket_cap_mb: float = 25.0, first_bucket_cap_mb: float = 1.0, **options: Any
) -> DataParallel:
    return DataParallel(model, Bucketed(bucket_cap_mb, first_bucket_cap_mb), **options)
