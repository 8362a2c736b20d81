"""Sparse: an embedding whose gradient is sparse, beside dense layers, in float64.

Sentences have several lengths. Padding has no gradient, so the ranks' sparse gradients have several sizes. In the
second step the last rank's sentences are all padding: it has a gradient without any row.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

from verifier.workload import Workload

FILLING = 0


class SparseModel(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(20, 6, sparse=True, padding_idx=FILLING)
        self.outlet = nn.Linear(6, 3)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        return self.outlet(self.embedding(tokens).mean(1))


class Sparse(Workload):
    def model(self, rank: int | None) -> nn.Module:
        return SparseModel().double()

    def optimizer(self) -> tuple[type[torch.optim.Optimizer], dict[str, Any]]:
        return torch.optim.SGD, {"lr": 0.125}  # no momentum: SGD's is not made for sparse gradients

    def batch(self, step: int, generator: torch.Generator) -> tuple[torch.Tensor, ...]:
        rows = self.scenario.samples_per_step
        tokens = torch.randint(20, (rows, 3), generator=generator)
        if step == 1:
            tokens[-(rows // self.scenario.world_size) :] = FILLING
        return tokens, torch.randn(rows, 3, generator=generator, dtype=torch.float64)

    def loss(self, output: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
        return (output - target).square().mean()


WORKLOAD = Sparse
