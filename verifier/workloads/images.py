"""Images: a convolution and BatchNorm2d, whose statistics are over rows, height and width.

The norm that most people synchronise. What a forward finds in the norm's statistics, and what it leaves there, is
reported as in ``buffers``; unlike there, no training forward reads them.
"""

from __future__ import annotations

import torch
from torch import nn

from verifier.workload import Workload, left, saw_buffers


class ImageModel(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.inlet = nn.Conv2d(2, 6, 3)
        self.norm = nn.BatchNorm2d(6, eps=1e-2, momentum=0.25)
        with torch.no_grad():
            self.norm.running_mean = torch.randn(6) / 2
            self.norm.running_var = torch.rand(6) + 0.5
        self.outlet = nn.Linear(6, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        saw_buffers(self)
        normal = self.norm(self.inlet(x))
        for name, buffer in (*self.named_buffers(),):
            left(name, buffer)
        return self.outlet(normal.relu().mean((2, 3)))


class Images(Workload):
    def model(self, rank: int | None) -> nn.Module:
        return ImageModel()

    def batch(self, step: int, generator: torch.Generator) -> tuple[torch.Tensor, ...]:
        rows = self.scenario.samples_per_step
        return torch.randn(rows, 2, 6, 5, generator=generator), torch.randn(rows, 3, generator=generator)

    def loss(self, output: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
        return (output - target).square().mean()


WORKLOAD = Images
