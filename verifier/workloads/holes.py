"""Holes: a parameter whose elements are every third number of its memory, beside a plain layer."""

from __future__ import annotations

import torch
from torch import nn

from verifier.workload import Workload


class HoleyModel(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.plain = nn.Linear(8, 6, dtype=torch.float64)
        self.column = nn.Parameter(torch.randn(6, 3, dtype=torch.float64)[:, 0])

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.plain(x) + self.column


class Holes(Workload):
    def model(self, rank: int | None) -> nn.Module:
        return HoleyModel()  # not .double(): it would close the holes

    def batch(self, step: int, generator: torch.Generator) -> tuple[torch.Tensor, ...]:
        rows = self.scenario.samples_per_step
        inputs = torch.randn(rows, 8, generator=generator, dtype=torch.float64)
        return inputs, torch.randn(rows, 6, generator=generator, dtype=torch.float64)

    def loss(self, output: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
        return (output - target).square().mean()


WORKLOAD = Holes
