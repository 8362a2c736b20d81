"""Exact arithmetic: an MLP of small integers, so that "equal" can mean bit for bit, in float32.

Weights are multiples of 1/2 between -1 and 1, inputs whole numbers, the loss linear in the output and multiplied by
the world size, so that sums are exact in any order and the mean over ranks is a whole multiple of the grid, also for
3, 5 or 7 ranks. Bits last for about three steps: use it for one.

Same-shape siblings (``left``, ``right``) and an odd-sized layer are there because swaps between equals go unnoticed
elsewhere.
"""

from __future__ import annotations

import torch
from torch import nn

from verifier.workload import Workload


class ExactModel(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.inlet = nn.Linear(6, 8)
        self.left = nn.Linear(8, 8)
        self.right = nn.Linear(8, 8)
        self.odd = nn.Linear(8, 7, bias=False)
        self.outlet = nn.Linear(7, 3)
        for parameter in self.parameters():
            with torch.no_grad():
                parameter.copy_(torch.randint(-2, 3, parameter.shape) / 2)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        hidden = self.inlet(x).relu()
        hidden = self.left(hidden).relu() - self.right(hidden)
        return self.outlet(self.odd(hidden))


class Exact(Workload):
    exact = True

    def model(self, rank: int | None) -> nn.Module:
        return ExactModel()

    def batch(self, step: int, generator: torch.Generator) -> tuple[torch.Tensor, ...]:
        rows = self.scenario.samples_per_step
        inputs = torch.randint(-2, 3, (rows, 6), generator=generator).float()
        targets = torch.randint(-2, 3, (rows, 3), generator=generator).float()
        return inputs, targets

    def loss(self, output: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
        return (output * target).sum() * self.scenario.world_size / len(target)


WORKLOAD = Exact
