"""Layers: a small MLP in the scenario's dtypes, a layer for each: of one dtype, of several, or complex.

In narrow dtypes the expectation is the mean of the ranks' own gradients, and the bound is for rounding in each
parameter's own dtype (``judge/comparison.py``); in float64 it is the single process.
"""

from __future__ import annotations

from itertools import pairwise

import torch
from torch import nn

from verifier.lines import AUTOCAST
from verifier.workload import Workload, column_major, saw

LOUD = 2.0**14  # norms of some thousand: float16 holds them, but not their squares


class Layers(nn.Module):
    def __init__(
        self, dtypes: tuple[torch.dtype, ...], width: int, *, says_autocast: bool = False, tied: bool = False
    ) -> None:
        super().__init__()
        self.says_autocast, self.dtypes = says_autocast, dtypes
        self.layers = nn.ModuleList(nn.Linear(width, width).to(dtype) for dtype in dtypes)
        for one, next_one in pairwise(self.layers) if tied else ():
            if one.weight.dtype == next_one.weight.dtype:
                next_one.weight = one.weight

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if self.says_autocast and torch.is_grad_enabled():
            saw(AUTOCAST, torch.tensor(torch.is_autocast_enabled(x.device.type), dtype=torch.float64))
        for layer, dtype in zip(self.layers, self.dtypes, strict=True):
            weight = getattr(layer, "weight", None)  # a sharder may have taken it away between forwards
            x = torch.tanh(layer(x.to(dtype if weight is None else weight.dtype)))
        return torch.view_as_real(x).sum(-1) if x.is_complex() else x


class LayersWorkload(Workload):
    rows_may_turn = True

    def model(self, rank: int | None) -> nn.Module:
        scenario = self.scenario
        dtypes = tuple(getattr(torch, name) for name in scenario.dtypes)
        model = Layers(dtypes, self.width, says_autocast=scenario.autocast, tied=scenario.tied)
        if scenario.column_major:
            for layer in model.layers:
                assert isinstance(layer, nn.Linear)
                layer.weight = column_major(layer.weight)
        return model

    @property
    def width(self) -> int:
        return self.scenario.width or 10

    def batch(self, step: int, generator: torch.Generator) -> tuple[torch.Tensor, ...]:
        rows = self.scenario.samples_per_step
        return torch.randn(rows, self.width, generator=generator), torch.randn(rows, self.width, generator=generator)

    def loss(self, output: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
        loss = (output.to(torch.float64) - target).square().mean()
        return loss * LOUD if self.scenario.loud else loss


WORKLOAD = LayersWorkload
