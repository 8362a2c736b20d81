"""Buffers: a model whose forward reads and writes statistics: BatchNorm, and a running mean of its own.

One buffer is replaced in each forward instead of written to: a list of buffers made earlier then holds the old tensor.
One buffer is in no ``state_dict()``.

What each forward *finds* is reported before it is changed: torch's DDP sends rank 0's buffers at the start of a
forward, so every replica normalises alike, and a checkpoint does not depend on which rank wrote it. What it *leaves* is
reported as well: the next forward must find a value between those that the ranks left. Nothing changes in evaluation
mode, nor if only the norm is in evaluation mode.
"""

from __future__ import annotations

import torch
from torch import nn

from verifier.workload import Workload, left, saw_buffers


class BufferModel(nn.Module):
    mean: torch.Tensor
    largest: torch.Tensor
    num_seen: torch.Tensor
    num_positive: torch.Tensor
    lately: torch.Tensor

    def __init__(self) -> None:
        super().__init__()
        self.inlet = nn.Linear(6, 8)
        self.norm = nn.BatchNorm1d(8, eps=1e-2, momentum=0.25)  # a strategy that replaces the norm must keep both
        with torch.no_grad():  # as in a model that was trained before: a norm made anew has others
            self.norm.running_mean = torch.randn(8) / 2
            self.norm.running_var = torch.rand(8) + 0.5
        self.outlet = nn.Linear(8, 3)
        self.register_buffer("lately", torch.zeros(6), persistent=False)
        self.register_buffer("mean", torch.zeros(6))
        self.register_buffer("largest", torch.zeros(6))
        self.register_buffer("num_seen", torch.tensor(2**24 + 1))  # like tokens seen: more than float32 can count
        self.register_buffer("num_positive", torch.zeros(6, dtype=torch.long))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        saw_buffers(self)
        with torch.no_grad():
            centred = x - self.mean
            if self.training and self.norm.training:
                self.mean.lerp_(x.mean(0), 0.25)
                self.largest = torch.maximum(0.5 * self.largest, x.amax(0))  # another tensor, under the old name
                self.lately.lerp_(x.square().mean(0), 0.5)
                self.num_seen += 1
                self.num_positive += (x > 0).sum(0)  # integers that differ by rank, like a codebook's usage
        normal = self.norm(self.inlet(centred))
        for name, buffer in (*self.named_buffers(),):
            left(name, buffer)
        return self.outlet(normal.relu())


class Buffers(Workload):
    def model(self, rank: int | None) -> nn.Module:
        return BufferModel()

    def batch(self, step: int, generator: torch.Generator) -> tuple[torch.Tensor, ...]:
        rows = self.scenario.samples_per_step
        return torch.randn(rows, 6, generator=generator), torch.randn(rows, 3, generator=generator)

    def loss(self, output: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
        return (output - target).square().mean()


WORKLOAD = Buffers
