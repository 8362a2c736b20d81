"""Asynchronous all-reduces of a few large buckets, launched while backward is still running.

A bucket is a flat buffer, made once. When a gradient is final it is divided by the world size *into* its place in the
buffer, one pass over memory for the copy and the mean. When the bucket is complete and it is its turn (ddp_core.turns),
the buffer is sent. After the reduction ``parameter.grad`` is a view into it: nothing is copied out, and the buffers are
the only copy of the gradients. A view survives ``zero_grad(set_to_none=True)``: the next backward writes to the same
place.

Special here: the buckets and their order are fixed on every rank before the first backward, and once more after it:
rank 0 has then observed the order in which its gradients became ready, and all ranks adopt *its* order. While a
gradient is in flight ``parameter.grad`` is None, so that nothing can write to memory that the transport owns.

Mechanism after Li et al., "PyTorch Distributed: Experiences on Accelerating Data Parallel Training", VLDB 2020
(https://arxiv.org/abs/2006.15704).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

import torch
from torch import nn

from ddp_core.bucket import Bucket
from ddp_core.buckets import MB, BucketPlan, Gradient, plan_buckets
from ddp_core.comm import Comm
from ddp_core.strategy import CLAIMS_OF_A_WRAPPER, Contract
from ddp_core.turns import InTurn, Parcel
from ddp_core.unused import nobody_used
from ddp_core.wire import Bfloat16Wire
from ddp_core.wrapper import DataParallel


class Bucketed(InTurn):
    """Bucketed, overlapped all-reduce.

    Args:
        bucket_cap_mb: size of a bucket, in MB of 2**20 bytes. A larger gradient makes a larger bucket.
        first_bucket_cap_mb: the same for the first bucket, smaller so that communication starts soon. The default is 1
            on a GPU, where the network has an engine of its own, and ``bucket_cap_mb`` on the CPU, where computation
            and communication share the cores and each call slows both (docs/step-time.md).
        gradient_as_bucket_view: leave views into the buckets in ``parameter.grad``. False: keep gradients where they
            are and copy the mean back; costs one more copy of the gradients.
        rebuild: adopt rank 0's ready order after the first backward.
        wire: ``"bf16"`` rounds what travels to bfloat16 (ddp_core.wire); sums are still made in float32.
    """

    def __init__(
        self,
        bucket_cap_mb: float = 25.0,
        first_bucket_cap_mb: float | None = None,
        *,
        gradient_as_bucket_view: bool = True,
        rebuild: bool = True,
        wire: Literal["bf16"] | None = None,
    ) -> None:
        for name, value in (("bucket_cap_mb", bucket_cap_mb), ("first_bucket_cap_mb", first_bucket_cap_mb)):
            if value is not None and not value > 0:
                raise ValueError(f"{name} must be greater than 0, got {value!r}")
        if wire not in (None, "bf16"):
            raise ValueError(f"wire must be 'bf16' or None (gradients travel as they are), got {wire!r}")
        self.bucket_cap_mb, self.first_bucket_cap_mb = bucket_cap_mb, first_bucket_cap_mb
        self.as_view, self.rebuild, self.wire = gradient_as_bucket_view, rebuild, wire
        self.buckets: list[Bucket] = []

    def prepare(self, named_parameters: Sequence[tuple[str, nn.Parameter]], comm: Comm) -> None:
        super().prepare(named_parameters, comm)
        self._ready_order: list[int] | None = [] if self.rebuild else None
        self._index = {id(parameter): index for index, parameter in enumerate(self.parameters)}
        self._next_plans: list[BucketPlan] | None = None
        self._build(self._plan(order=None))

    def _plan(self, order: Sequence[int] | None) -> list[BucketPlan]:
        gradients = [
            Gradient(name, p.numel(), p.numel() * p.element_size(), (str(p.dtype), str(p.device)))
            for name, p in zip(self.names, self.parameters, strict=True)
        ]
        first = self.first_bucket_cap_mb
        if first is None:
            on_cpu = all(p.device.type == "cpu" for p in self.parameters)
            first = self.bucket_cap_mb if on_cpu else min(1.0, self.bucket_cap_mb)
        caps = {"cap_bytes": max(int(self.bucket_cap_mb * MB), 1), "first_cap_bytes": max(int(first * MB), 1)}
        return plan_buckets(gradients, order=order, **caps)

    def _build(self, plans: list[BucketPlan]) -> None:
        self.buckets = []  # first, so that old buffers are freed as soon as no gradient is a view of them
        self.set_parcels([])
        self.buckets = [Bucket(plan, self.parameters) for plan in plans]
        self.set_parcels(self.buckets)

    def backward_started(self) -> None:
        if self._next_plans is not None:
            self._build(self._next_plans)
            self._next_plans = None
        self.reset()
        for bucket in self.buckets:
            bucket.absent, bucket.taken = [], set()

    def gradient_ready(self, parameter: nn.Parameter) -> None:
        if self._ready_order is not None:
            self._ready_order.append(self._index[id(parameter)])
        super().gradient_ready(parameter)

    def take(self, parcel: Parcel, parameter: nn.Parameter) -> None:
        assert isinstance(parcel, Bucket)
        view, gradient, key = parcel.view_of[id(parameter)], parameter.grad, id(parameter)
        if gradient is None:
            if key not in parcel.taken:
                parcel.absent.append(parameter)
        elif gradient is view:  # it has accumulated in place: zero_grad(set_to_none=False), or no zero_grad
            self.average(gradient)
        elif key in parcel.taken and self.as_view:  # a further part of a gradient
            view.add_(self.average(gradient))
        else:
            self.average(gradient, out=view)
        parcel.taken.add(key)
        if self.as_view:
            parameter.grad = None

    def send(self, parcel: Parcel) -> None:
        assert isinstance(parcel, Bucket)
        parcel.mark_present()
        if self.wire is not None and parcel.buffer.dtype == torch.float32:
            parcel.work = Bfloat16Wire(self.comm, parcel.buffer)
        else:
            parcel.work = self.comm.all_reduce_async(parcel.buffer)

    def arrived(self, parcel: Parcel) -> None:
        assert isinstance(parcel, Bucket)
        unused = {id(p) for p in parcel.absent if nobody_used(parcel.view_of[id(p)])} if parcel.absent else ()
        for parameter in parcel.parameters:
            view = parcel.view_of[id(parameter)]
            if id(parameter) in unused:
                parameter.grad = None
            elif self.as_view:
                parameter.grad = view
            elif parameter.grad is None:
                parameter.grad = view.clone()
            else:
                parameter.grad.copy_(view)

    def backward_done(self) -> None:
        super().backward_done()
        if self._ready_order is not None:
            order = self.comm.broadcast_object(self._ready_order)
            self._ready_order = None
            plans = self._plan(order)
            if plans != [bucket.plan for bucket in self.buckets]:
                self._next_plans = plans  # used at the next backward: by then zero_grad has released the old buffers

    def plan(self) -> list[list[str]]:
        """Parameter names by bucket, in launch order: the same on every rank."""
        plans = self._next_plans or [bucket.plan for bucket in self.buckets]
        return [[slot.name for slot in plan.slots] for plan in plans]

    def __repr__(self) -> str:
        sizes = " + ".join(f"{bucket.num_bytes / MB:.3g}" for bucket in self.buckets) or "not planned yet"
        wire = f", wire={self.wire!r}" if self.wire else ""
        return f"Bucketed(bucket_cap_mb={self.bucket_cap_mb:g}{wire}; {len(self.buckets)} buckets: {sizes} MB)"


def contract(*, wire: str | None = None, **options: Any) -> Contract:
    return Contract(lossy="bfloat16" if wire == "bf16" else None, supports=CLAIMS_OF_A_WRAPPER)


def wrap(
    model: nn.Module,
    *,
    bucket_cap_mb: float = 25.0,
    first_bucket_cap_mb: float | None = None,
    gradient_as_bucket_view: bool = True,
    rebuild: bool = True,
    wire: Literal["bf16"] | None = None,
    **options: Any,
) -> DataParallel:
    layout = {"gradient_as_bucket_view": gradient_as_bucket_view, "rebuild": rebuild}
    return DataParallel(model, Bucketed(bucket_cap_mb, first_bucket_cap_mb, wire=wire, **layout), **options)
