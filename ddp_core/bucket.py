"""A bucket in memory: one flat buffer, made once, and views of it that serve as gradients.

Special here: a view has its parameter's own strides where the parameter is dense (a transposed weight, channels_last),
so that it can serve as ``parameter.grad``. ``ddp_core.agreement`` has checked that strides are equal on all ranks;
otherwise the same place in the buffer would hold different elements.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import nn

from ddp_core.buckets import BucketPlan
from ddp_core.turns import Parcel
from ddp_core.unused import mark_absent


class Bucket(Parcel):
    """A flat buffer, with one view of it for each parameter's gradient."""

    def __init__(self, plan: BucketPlan, parameters: Sequence[nn.Parameter]) -> None:
        super().__init__([parameters[slot.index] for slot in plan.slots])
        self.plan = plan
        like = self.parameters[0]
        self.buffer = torch.zeros(plan.numel, dtype=like.dtype, device=like.device)
        self.view_of = {
            id(parameter): _view(self.buffer, slot.offset, parameter)
            for slot, parameter in zip(plan.slots, self.parameters, strict=True)
        }
        self.firsts = torch.tensor(
            [slot.offset for slot in plan.slots if slot.numel], dtype=torch.int64, device=like.device
        )
        self.zeros = torch.zeros(len(self.firsts), dtype=like.dtype, device=like.device)
        self.absent: list[nn.Parameter] = []  # not used by this rank in the backward under way
        self.taken: set[int] = set()

    def mark_present(self) -> None:
        """Mark every gradient in the buffer as present at once, then the absent ones as absent (ddp_core.unused)."""
        self.buffer.index_add_(0, self.firsts, self.zeros)
        for parameter in self.absent:
            mark_absent(self.view_of[id(parameter)])

    @property
    def num_bytes(self) -> int:
        return self.buffer.numel() * self.buffer.element_size()


def _view(buffer: torch.Tensor, offset: int, parameter: nn.Parameter) -> torch.Tensor:
    """The part of ``buffer`` for ``parameter``, in its shape and, if the parameter is dense, with its strides."""
    if torch.ops.aten.is_non_overlapping_and_dense(parameter):
        return buffer.as_strided(parameter.shape, parameter.stride(), offset)
    return buffer[offset : offset + parameter.numel()].view(parameter.shape)
