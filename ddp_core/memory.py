"""Reports a training job's memory by use: parameters, gradients, optimizer state, activations.

Special here: activations are measured, not estimated. Hooks see each tensor that autograd saves for backward, and each
storage counts once, however many operations save it. Parameters and buffers, which autograd saves as well, do not
count as activations.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, dataclass
from typing import Any

import torch
from torch import nn

from ddp_core.buckets import MB


@dataclass(frozen=True)
class MemoryReport:
    """Bytes by use. ``activations`` is None if not measured. ``str()`` gives a table in MB of 2**20 bytes."""

    parameters: int
    buffers: int
    gradients: int
    optimizer_state: int
    activations: int | None

    @property
    def total(self) -> int:
        return sum(value or 0 for value in asdict(self).values())

    def __str__(self) -> str:
        rows = [*asdict(self).items(), ("total", self.total)]
        lines = [f"{'use':<16}{'MB':>12}{'bytes':>16}"]
        for use, value in rows:
            size = f"{value / MB:>12.2f}{value:>16,}" if value is not None else f"{'-':>12}{'not measured':>16}"
            lines.append(f"{use.replace('_', ' '):<16}{size}")
        return "\n".join(lines)


def memory_report(
    model: nn.Module, optimizer: torch.optim.Optimizer, loss: Callable[[], torch.Tensor] | None = None
) -> MemoryReport:
    """Memory that ``model`` and ``optimizer`` hold on this rank. Call it after a step, when optimizer state exists.

    ``loss`` runs one forward, whose activations are measured. No backward follows: weights and gradients stay as they
    are, but buffers (such as BatchNorm's statistics) and the random state change as in any forward.
    """
    gradients = [p.grad for p in model.parameters() if p.grad is not None]
    return MemoryReport(
        parameters=_bytes(model.parameters()),
        buffers=_bytes(model.buffers()),
        gradients=_bytes(gradients),
        optimizer_state=_bytes(_tensors_in(optimizer.state)),
        activations=None if loss is None else activation_bytes(model, loss),
    )


def activation_bytes(model: nn.Module, loss: Callable[[], torch.Tensor]) -> int:
    """Bytes of tensors, inputs included, that autograd saves in the forward of ``loss()`` for its backward.

    Activations that checkpointing recomputes in backward are not saved, so they do not count.
    """
    excluded = {_address(tensor) for tensor in [*model.parameters(), *model.buffers()]}
    # Storages are held until the end, or the address of one freed half-way could be reused by the next.
    kept: dict[int, torch.UntypedStorage] = {}

    def pack(tensor: torch.Tensor) -> torch.Tensor:
        for part in _strided_parts(tensor):
            if _address(part) not in excluded:
                kept[_address(part)] = part.untyped_storage()
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        result = loss()
    del result
    return sum(storage.nbytes() for storage in kept.values())


def _address(tensor: torch.Tensor) -> int:
    return tensor.untyped_storage().data_ptr()


def _strided_parts(tensor: torch.Tensor) -> list[torch.Tensor]:
    return [tensor._indices(), tensor._values()] if tensor.layout == torch.sparse_coo else [tensor]


def _bytes(tensors: Iterable[torch.Tensor]) -> int:
    distinct = {id(tensor): tensor for tensor in tensors}.values()
    return sum(part.numel() * part.element_size() for tensor in distinct for part in _strided_parts(tensor))


def _tensors_in(state: Any) -> list[torch.Tensor]:
    if isinstance(state, torch.Tensor):
        return [state]
    if isinstance(state, Mapping):
        return [tensor for value in state.values() for tensor in _tensors_in(value)]
    if isinstance(state, list | tuple):
        return [tensor for value in state for tensor in _tensors_in(value)]
    return []
