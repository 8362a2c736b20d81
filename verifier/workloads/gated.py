"""Gated: experts that run on every rank, and whose gate is shut for all samples of one: a gradient of zeros, not None.

This happens where experts are weighted, a loss is masked, or a ReLU is dead. Every rank uses every parameter, so a
strategy needs no claim for it. A strategy that skips zero gradients skips them on one rank only; experts have one size,
so it may then add up two different ones. In the second step every gate of the last rank is shut: all its gradients are
zeros, as if all of its targets were ignored. In exact arithmetic, in float32.
"""

from __future__ import annotations

import torch
from torch import nn

from verifier.workload import Workload

ALL = -1  # all gates are shut


class GatedModel(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.experts = nn.ModuleList(nn.Linear(6, 5) for _ in range(3))
        self.outlet = nn.Linear(5, 3, bias=False)
        for parameter in self.parameters():
            with torch.no_grad():
                parameter.copy_(torch.randint(-2, 3, parameter.shape) / 2)

    def forward(self, x: torch.Tensor, shut: torch.Tensor) -> torch.Tensor:
        gates = [((shut != number) & (shut != ALL)).unsqueeze(1) for number in range(len(self.experts))]
        return self.outlet(sum(expert(x) * gate for expert, gate in zip(self.experts, gates, strict=True)))


class Gated(Workload):
    exact = True

    def model(self, rank: int | None) -> nn.Module:
        return GatedModel()

    def batch(self, step: int, generator: torch.Generator) -> tuple[torch.Tensor, ...]:
        rows = self.scenario.samples_per_step
        inputs = torch.randint(-2, 3, (rows, 6), generator=generator).float()
        targets = torch.randint(-2, 3, (rows, 3), generator=generator).float()
        rank = torch.arange(rows) // (rows // self.scenario.world_size)
        shut = rank % 3
        if step > 0:
            shut[rank == self.scenario.world_size - 1] = ALL
        return inputs, shut, targets

    def loss(self, output: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
        return (output * target).sum() * self.scenario.world_size / len(target)


WORKLOAD = Gated
