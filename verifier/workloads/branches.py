"""Branches: independent layers of equal size, visited in an order that differs from rank to rank.

Legal, and common: a branch taken by the data, an expert, a task head. What is computed is the same; the order in
which gradients become ready is not, because autograd visits the last used first. Every wrapper that lets arrival
order decide what travels together adds up different parameters here.

Used with tagged gradients: the numbers of the forward pass do not matter.
"""

from __future__ import annotations

import torch
from torch import nn

from verifier.workload import Workload


class BranchModel(nn.Module):
    def __init__(self, order: list[str]) -> None:
        super().__init__()
        self.branches = nn.ModuleDict({name: nn.Linear(6, 6) for name in ("north", "east", "south", "west")})
        self.order = order

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.stack([self.branches[name](x) for name in self.order]).sum(0)


class Branches(Workload):
    def model(self, rank: int | None) -> nn.Module:
        names = ["north", "east", "south", "west"]
        turn = (rank or 0) % 4
        return BranchModel(names[turn:] + names[:turn])

    def batch(self, step: int, generator: torch.Generator) -> tuple[torch.Tensor, ...]:
        rows = self.scenario.samples_per_step
        return torch.randn(rows, 6, generator=generator), torch.randn(rows, 6, generator=generator)

    def loss(self, output: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
        return (output - target).square().mean()


WORKLOAD = Branches
