"""A synchroniser: an object beside the model that makes replicas equal, and their gradients their mean.

The model stays bare; the training loop makes two calls:

    synchronizer.broadcast_parameters(model)                         # once, before the first forward
    loss.backward(); synchronizer.sync_gradients(model); optimizer.step()

Special here: which gradients travel, in what parcels and in which order, is planned once, from what the ranks have
just agreed upon by name, and never from what this rank's backward happened to produce. A rank that did not use a
parameter sends zeros for it. Nothing overlaps with backward: this is the simplest thing that is right, over any
``Communicator``.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any
from weakref import WeakKeyDictionary

import torch
from torch import nn

from ddp_core.buckets import MB, BucketPlan, Gradient, plan_buckets
from ddp_core.communicator import Communicator
from ddp_core.strategy import gradient_or_zeros
from ddp_core.wrapper import require_agreement


@dataclass(frozen=True)
class Plan:
    """What was agreed for one model: its trainable parameters in registration order, and their buckets."""

    signature: tuple[Any, ...]
    parameters: tuple[nn.Parameter, ...]
    buckets: tuple[BucketPlan, ...]


class Synchronizer:
    """Keeps replicas of a model equal over ``comm``. ``bucket_cap_mb`` is in MB of 2**20 bytes.

    ``no_sync()`` is not needed: gradients add up in ``.grad`` until ``sync_gradients`` is called.

    Raises ValueError if ``bucket_cap_mb`` is not positive.
    """

    def __init__(self, comm: Communicator, *, use_bucketing: bool = True, bucket_cap_mb: float = 25.0) -> None:
        if not bucket_cap_mb > 0:
            raise ValueError(f"bucket_cap_mb must be greater than 0, got {bucket_cap_mb!r}")
        self.comm, self.use_bucketing, self.bucket_cap_mb = comm, use_bucketing, bucket_cap_mb
        self._plans: WeakKeyDictionary[nn.Module, Plan] = WeakKeyDictionary()

    def broadcast_parameters(self, model: nn.Module, root: int = 0) -> None:
        """Copy rank ``root``'s parameters (frozen ones too) and buffers to every rank.

        Raises ValueError on every rank if names, shapes, dtypes or order differ between ranks; the message names the
        first rank and parameter that do.
        """
        self._plan(model)
        with torch.no_grad():
            for tensor in [*model.parameters(), *model.buffers()]:
                self.comm.bcast(tensor, root=root)

    def sync_gradients(self, model: nn.Module, use_bucketing: bool | None = None) -> None:
        """Replace every trainable parameter's ``.grad`` by its mean over ranks; zeros count where a rank has none.

        One all-reduce per bucket, or one per parameter without bucketing. ``use_bucketing`` None: as constructed.

        Parameters may be frozen or unfrozen between steps, on all ranks in the same step.

        Raises ValueError as ``broadcast_parameters`` does, at the first call for a model.
        """
        plan = self._plan(model)
        with torch.no_grad():
            if self.use_bucketing if use_bucketing is None else use_bucketing:
                for bucket in plan.buckets:
                    self._reduce_bucket(bucket, [plan.parameters[slot.index] for slot in bucket.slots])
            else:
                for parameter in plan.parameters:
                    gradient = _dense_gradient(parameter)
                    self.comm.all_reduce(gradient)
                    gradient.div_(self.comm.world_size)

    def _reduce_bucket(self, bucket: BucketPlan, parameters: list[nn.Parameter]) -> None:
        """One all-reduce for a bucket; its flat buffer lives only this long."""
        flat = torch.empty(bucket.numel, dtype=parameters[0].dtype, device=parameters[0].device)
        places = [
            (_dense_gradient(parameter), flat[slot.offset : slot.offset + slot.numel].view(parameter.shape))
            for slot, parameter in zip(bucket.slots, parameters, strict=True)
        ]
        for gradient, place in places:
            place.copy_(gradient)
        self.comm.all_reduce(flat)
        flat.div_(self.comm.world_size)
        for gradient, place in places:
            gradient.copy_(place)

    def _plan(self, model: nn.Module) -> Plan:
        """The plan for ``model``; made, after all ranks have compared notes, when the model is new or has changed."""
        signature = tuple((n, id(p), p.requires_grad, p.dtype, p.device) for n, p in model.named_parameters())
        known = self._plans.get(model)
        if known is not None and known.signature == signature:
            return known
        everything: Any = [*model.named_parameters(), *model.named_buffers()]
        ranks: Any = self.comm  # of which it needs gather_objects alone
        require_agreement(ranks, everything)
        named = [(name, p) for name, p in model.named_parameters() if p.requires_grad]
        gradients = [Gradient(n, p.numel(), p.numel() * p.element_size(), (p.dtype, str(p.device))) for n, p in named]
        cap = max(int(self.bucket_cap_mb * MB), 1)
        buckets = plan_buckets(gradients, cap_bytes=cap, first_cap_bytes=cap)
        self._plans[model] = Plan(signature, tuple(p for _, p in named), tuple(buckets))
        return self._plans[model]

    def buckets(self, model: nn.Module) -> list[list[str]]:
        """Parameter names by bucket, in the order in which buckets travel: the same on every rank."""
        return [[slot.name for slot in bucket.slots] for bucket in self._plan(model).buckets]

    def __repr__(self) -> str:
        options = f"use_bucketing={self.use_bucketing}, bucket_cap_mb={self.bucket_cap_mb:g}"
        return f"Synchronizer({self.comm!r}, {options})"


def _dense_gradient(parameter: nn.Parameter) -> torch.Tensor:
    """The gradient, zeros where there is none. A sparse one is made dense: ranks use different rows."""
    gradient = gradient_or_zeros(parameter)
    if gradient.layout != torch.strided:
        gradient = parameter.grad = gradient.to_dense()
    return gradient
