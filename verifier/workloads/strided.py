"""Strided: parameters whose elements do not lie in row-major order, in exact arithmetic.

A transposed weight (dense, in column-major order), a convolution in channels-last layout, and a transposed buffer; if
ranks start unequal, also a frozen weight that is transposed.
Transports move memory: a reduction over tensors with different layouts, or over a buffer filled by ``view(-1)``, adds
up elements that do not belong together.
"""

from __future__ import annotations

import torch
from torch import nn

from verifier.workload import Workload, saw


class StridedModel(nn.Module):
    table: torch.Tensor

    def __init__(self, *, frozen: bool) -> None:
        super().__init__()
        self.transposed = nn.Parameter(torch.empty(6, 4).t())
        self.conv = nn.Conv2d(2, 3, 3, padding=1)
        self.conv.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
        self.plain = nn.Linear(12, 4)
        self.register_buffer("table", torch.randint(-2, 3, (6, 4)).float().t())
        if frozen:
            self.backbone = nn.Parameter(torch.empty(6, 5).t(), requires_grad=False)
        for parameter in self.parameters():
            with torch.no_grad():
                parameter.copy_(torch.randint(-2, 3, parameter.shape) / 2)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        saw("table", self.table)
        if hasattr(self, "backbone"):
            saw("backbone", self.backbone)
        hidden = self.conv(x.view(len(x), 2, 2, 2)).flatten(1)
        return self.plain(hidden) @ self.transposed + self.table[0]


class Strided(Workload):
    @property
    def exact(self) -> bool:  # type: ignore[override]  # the factor of clipping is not an integer
        return self.scenario.clip_norm is None

    def model(self, rank: int | None) -> nn.Module:
        return StridedModel(frozen=not self.scenario.same_start).double()  # float32 has enough bits for one step only

    def batch(self, step: int, generator: torch.Generator) -> tuple[torch.Tensor, ...]:
        rows = self.scenario.samples_per_step
        inputs = torch.randint(-2, 3, (rows, 8), generator=generator).double()
        targets = torch.randint(-2, 3, (rows, 6), generator=generator).double()
        return inputs, targets

    def loss(self, output: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
        return (output * target).sum() * self.scenario.world_size / len(target)


WORKLOAD = Strided
