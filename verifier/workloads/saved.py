"""Saved: a model whose checkpoint has to hold more than what is trained, in float64.

A frozen layer and two buffers, one of them of integers, are drawn at random, and every forward computes with them: a
fresh replica that does not load them computes something else. One weight is saved under two names, and one layer's name
has ``module``, the prefix that wrappers add, in the middle. Weights and biases alternate, so that parameter groups of
each are in another order than the model. A third buffer changes: every training forward leaves a row of weights there,
which forwards in evaluation read. It does not depend on the samples, nor on the number of forwards.
"""

from __future__ import annotations

import torch
from torch import nn

from verifier.workload import Workload

FEATURES, WIDTH = 6, 7


class SavedModel(nn.Module):
    offset: torch.Tensor
    order: torch.Tensor
    latest: torch.Tensor

    def __init__(self) -> None:
        super().__init__()
        self.encoder = nn.Linear(FEATURES, WIDTH)
        self.frozen = nn.Linear(WIDTH, WIDTH)
        self.frozen.requires_grad_(False)
        self.norm = nn.ModuleDict({"module": nn.LayerNorm(WIDTH)})
        self.decoder = nn.Linear(FEATURES, WIDTH, bias=False)
        self.decoder.weight = self.encoder.weight
        self.register_buffer("offset", torch.randn(FEATURES))
        self.register_buffer("order", torch.randperm(WIDTH))
        self.register_buffer("latest", torch.randn(FEATURES))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if self.training:
            with torch.no_grad():
                self.latest.copy_(self.encoder.weight[0])
        hidden = torch.tanh(self.encoder(x + self.offset + (0.0 if self.training else self.latest)))
        hidden = self.norm["module"](self.frozen(hidden)[:, self.order] * torch.arange(1, WIDTH + 1, device=x.device))
        return hidden @ self.decoder.weight


class Saved(Workload):
    def model(self, rank: int | None) -> nn.Module:
        return SavedModel().double()

    def batch(self, step: int, generator: torch.Generator) -> tuple[torch.Tensor, ...]:
        rows = self.scenario.samples_per_step
        inputs = torch.randn(rows, FEATURES, generator=generator, dtype=torch.float64)
        return inputs, torch.randn(rows, FEATURES, generator=generator, dtype=torch.float64)

    def loss(self, output: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
        return (output - target).square().mean()


WORKLOAD = Saved
