"""A synchroniser: an object beside the model that makes replicas equal and averages their gradients.

The model stays bare; the training loop makes two calls:

    synchronizer.broadcast_parameters(model)                         # once, before the first forward
    loss.backward(); synchronizer.sync_gradients(model); optimizer.step()

Special here: the gradients to send, their buckets and their order are planned once, from the parameters that all ranks
have agreed on by name, and never from the gradients that this rank's backward produced. A rank that did not use a
parameter sends -0.0 for it, so that a parameter that *no* rank used is recognised (``ddp_core.unused``). Nothing
overlaps with backward: this is the simplest correct design, over any ``Communicator``.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any
from weakref import WeakKeyDictionary

import torch
from torch import nn

from ddp_core.agreement import require_agreement
from ddp_core.buckets import MB, Gradient, plan_buckets
from ddp_core.communicator import Communicator
from ddp_core.unused import mark_absent, mark_present, nobody_used


@dataclass(frozen=True)
class Plan:
    """The plan agreed for one model: trainable parameters in registration order, and each bucket's indices in them."""

    signature: tuple[Any, ...]
    names: list[str]
    parameters: list[nn.Parameter]
    buckets: list[list[int]]


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
        first rank and parameter that differ.
        """
        self._plan(model)
        with torch.no_grad():
            for tensor in [*model.parameters(), *model.buffers()]:
                self.comm.bcast(tensor, root=root)

    def sync_gradients(self, model: nn.Module, use_bucketing: bool | None = None) -> None:
        """Replace every trainable parameter's ``.grad`` by its mean over ranks; a missing gradient counts as zeros.

        One all-reduce per bucket, or one per parameter without bucketing. ``use_bucketing`` None: as constructed. A
        parameter that has no gradient on any rank still has none afterwards. Sparse gradients become dense.

        Parameters may be frozen or unfrozen between steps, on all ranks in the same step.

        Raises ValueError as ``broadcast_parameters`` does, at the first call for a model.
        """
        plan = self._plan(model)
        bucketed = self.use_bucketing if use_bucketing is None else use_bucketing
        with torch.no_grad():
            for places in plan.buckets if bucketed else [[index] for index in range(len(plan.parameters))]:
                self._reduce([plan.parameters[place] for place in places])

    def _reduce(self, parameters: Sequence[nn.Parameter]) -> None:
        """Average the gradients of ``parameters``, of one dtype and device, by one all-reduce of a flat buffer.

        The buffer exists only during this call. Its elements are in the order of their indices, whatever strides the
        gradients have here or on other ranks.
        """
        first = parameters[0]
        flat = torch.empty(sum(p.numel() for p in parameters), dtype=first.dtype, device=first.device)
        pieces = flat.split([p.numel() for p in parameters])
        for parameter, piece in zip(parameters, pieces, strict=True):
            _fill(piece.view(parameter.shape), parameter.grad)
        self.comm.all_reduce(flat)
        for parameter, piece in zip(parameters, pieces, strict=True):
            _hand_out(piece.view(parameter.shape), parameter, self.comm.world_size)

    def _plan(self, model: nn.Module) -> Plan:
        """The plan for ``model``. If the model is new or has changed, all ranks check agreement and make the plan."""
        signature = tuple((n, id(p), p.requires_grad, p.dtype, p.device) for n, p in model.named_parameters())
        known = self._plans.get(model)
        if known is not None and known.signature == signature:
            return known
        ranks: Any = self.comm  # of a Comm, only gather_objects and world_size are needed
        require_agreement(ranks, list(model.named_parameters()), list(model.named_buffers()))
        named = [(name, p) for name, p in model.named_parameters() if p.requires_grad]
        gradients = [Gradient(n, p.numel(), p.numel() * p.element_size(), (p.dtype, str(p.device))) for n, p in named]
        cap = max(int(self.bucket_cap_mb * MB), 1)
        buckets = plan_buckets(gradients, cap_bytes=cap, first_cap_bytes=cap)
        places = [[slot.index for slot in bucket.slots] for bucket in buckets]
        plan = self._plans[model] = Plan(signature, [n for n, _ in named], [p for _, p in named], places)
        return plan

    def buckets(self, model: nn.Module) -> list[list[str]]:
        """Parameter names by bucket, in the order in which buckets are sent: the same on every rank."""
        plan = self._plan(model)
        return [[plan.names[place] for place in bucket] for bucket in plan.buckets]

    def __repr__(self) -> str:
        options = f"use_bucketing={self.use_bucketing}, bucket_cap_mb={self.bucket_cap_mb:g}"
        return f"Synchronizer({self.comm!r}, {options})"


def _fill(piece: torch.Tensor, gradient: torch.Tensor | None) -> None:
    """Copy ``gradient`` into ``piece`` as a dense tensor; without a gradient mark ``piece`` as absent."""
    if gradient is None:
        mark_absent(piece)
    else:
        piece.copy_(gradient if gradient.layout == torch.strided else gradient.to_dense())
        mark_present(piece)


def _hand_out(piece: torch.Tensor, parameter: nn.Parameter, world_size: int) -> None:
    """Write the mean of ``piece``, a sum over ranks, to ``parameter.grad``; leave None there if no rank had one."""
    if parameter.grad is None and nobody_used(piece):
        return
    if parameter.grad is None or parameter.grad.layout != torch.strided:
        parameter.grad = torch.empty_like(parameter, memory_format=torch.preserve_format)
    torch.div(piece, world_size, out=piece)
    parameter.grad.copy_(piece)
