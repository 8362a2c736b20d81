"""Checks before training that all ranks hold the same model, and that it can be wrapped.

Special here: every rank sends what it holds *and* its objection in one exchange, and all ranks raise the same error. If
only some ranks raised, the others would wait for them.

torch's DDP compares only counts and shapes. If one rank registers parameters of equal shape in another order, DDP
swaps them without an error, at the start and in every step.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import nn

from ddp_core.comm import Comm


class Entry(NamedTuple):
    """The properties of one parameter or buffer that must be equal on all ranks."""

    name: str
    dtype: str
    shape: tuple[int, ...]
    stride: tuple[int, ...]  # flat buffers are filled in memory order: other strides would permute elements
    kind: str  # "", ", frozen" or ", buffer"

    def __str__(self) -> str:
        return f"'{self.name}' ({self.dtype}, shape {list(self.shape)}{self.kind})"


def require_agreement(
    comm: Comm,
    named_parameters: Sequence[tuple[str, nn.Parameter]],
    named_buffers: Sequence[tuple[str, torch.Tensor]] = (),
    objection: str | None = None,
) -> None:
    """Raise ValueError on every rank if any rank objects, or holds other parameters or buffers than rank 0.

    It compares names, dtypes, shapes, strides, order, and which parameters are frozen. The message names the first
    rank and parameter that differ. ``objection`` is this rank's own reason to refuse the model.
    """
    parameters = [_entry(name, p, "" if p.requires_grad else ", frozen") for name, p in named_parameters]
    buffers = [_entry(name, buffer, ", buffer") for name, buffer in named_buffers]
    every = comm.gather_objects((objection, parameters, buffers))
    objections = [(rank, theirs[0]) for rank, theirs in enumerate(every) if theirs[0]]
    if len(objections) == comm.world_size:
        raise ValueError(objections[0][1])
    for what, column in (("parameter", 1), ("buffer", 2)):
        for rank, theirs in enumerate(every):
            _require_equal(what, every[0][column], rank, theirs[column])
    if objections:  # the models are equal, so the objection depends on the rank
        rank, reason = objections[0]
        raise ValueError(f"{reason} (on rank {rank})")


def _entry(name: str, tensor: torch.Tensor, kind: str) -> Entry:
    dtype = str(tensor.dtype).removeprefix("torch.")
    if isinstance(tensor, nn.parameter.UninitializedParameter | nn.parameter.UninitializedBuffer):
        return Entry(name, dtype, (), (), ", not initialised")
    return Entry(name, dtype, tuple(tensor.shape), tuple(tensor.stride()), kind)


def _require_equal(what: str, first: list[Entry], rank: int, theirs: list[Entry]) -> None:
    for place, (ours, other) in enumerate(zip(first, theirs, strict=False)):
        if ours != other:
            strides = ours.stride != other.stride and ours.shape == other.shape
            detail = f" (strides {list(ours.stride)} and {list(other.stride)})" if strides else ""
            raise ValueError(
                f"replicas do not agree on {what} number {place}: rank 0 has {ours}, rank {rank} has {other}{detail}"
            )
    if len(theirs) != len(first):
        longer, more = (first, 0) if len(first) > len(theirs) else (theirs, rank)
        extra = longer[min(len(first), len(theirs))]
        raise ValueError(
            f"rank 0 has {len(first)} {what}s, rank {rank} has {len(theirs)}: "
            f"the first that only rank {more} has is {extra}"
        )


def require_equal_values(comm: Comm, named: Sequence[tuple[str, torch.Tensor]]) -> None:
    """Raise ValueError on every rank unless every tensor holds rank 0's bytes.

    It compares bytes, not numbers: 0.0 and -0.0 differ, and NaNs of equal bytes agree. It costs one broadcast of the
    model.
    """
    different = []
    for name, tensor in named:
        theirs = tensor.detach().clone(memory_format=torch.contiguous_format)
        comm.broadcast(theirs)
        mine = tensor.detach().contiguous()
        if not torch.equal(_bytes(mine), _bytes(theirs)):
            different.append(name)
    every = comm.gather_objects(different)
    guilty = [(rank, names) for rank, names in enumerate(every) if names]
    if guilty:
        rank, names = guilty[0]
        raise ValueError(
            f"replicas do not start equal: rank {rank} holds other values of '{names[0]}' than rank 0 "
            f"({len(names)} tensors differ there; ranks that differ: {[r for r, _ in guilty]}). "
            "Build the model from the same seed or checkpoint on every rank, or use a strategy that broadcasts."
        )


def _bytes(tensor: torch.Tensor) -> torch.Tensor:
    plain = torch.view_as_real(tensor) if tensor.is_complex() else tensor
    # Not reshape(-1): a tensor of one element is contiguous at any stride, but view(dtype) requires a stride of 1.
    return plain.as_strided((plain.numel(),), (1,)).view(torch.uint8)
