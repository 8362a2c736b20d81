"""A bucket in memory: one flat buffer, made once, and the views of it that stand for gradients.

Special here: a view has its parameter's own strides where the parameter is dense (a transposed weight, channels_last),
so that it can serve as ``parameter.grad``; all ranks have been found to agree on strides (ddp_core.agreement), or the
same place in the buffer would mean other elements.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import nn

from ddp_core.buckets import BucketPlan
from ddp_core.turns import Parcel
from ddp_core.unused import mark_absent


class Bucket(Parcel):
    """A flat buffer and the views of it that stand for each parameter's gradient."""

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
        """As ``unused.mark_present`` for every gradient in the buffer, at once; then absent ones as absent."""
        self.buffer.index_add_(0, self.firsts, self.zeros)
        for parameter in self.absent:
            mark_absent(self.view_of[id(parameter)])

    @property
    def num_bytes(self) -> int:
        return self.buffer.numel() * self.buffer.element_size()


def _view(buffer: torch.Tensor, offset: int, parameter: nn.Parameter) -> torch.Tensor:
    """The part of ``buffer`` that is ``parameter``'s, in its shape and, where it is dense, with its strides."""
    if torch.ops.aten.is_non_overlapping_and_dense(parameter):
        return buffer.as_strided(parameter.shape, parameter.stride(), offset)
    return buffer[offset : offset + parameter.numel()].view(parameter.shape)
