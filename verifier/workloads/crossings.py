"""Crossings: layers of a special kind beside plain ones, in an order that differs from rank to rank.

As in ``branches``, the order in which gradients become ready differs, and the result does not. Half of the layers are
lookups whose gradients are sparse, or are complex: a strategy may send those on a path of their own, as they arrive,
and the rest in one order. All lookups have one shape, and so have all complex layers: what is sent out of turn is added
to another's, or meets another collective.

Not tagged: tags are made for dense, real gradients. In float64, so that a sum in another order is no matter.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

from verifier.scenario import SGD_LR
from verifier.workload import Workload

SPECIAL, PLAIN = ("first", "second", "third"), ("fourth", "fifth", "sixth")
NUM_TOKENS, WIDTH = 12, 6


class CrossingModel(nn.Module):
    def __init__(self, order: list[str], *, is_complex: bool) -> None:
        super().__init__()
        self.is_complex = is_complex
        self.layers = nn.ModuleDict({name: nn.Linear(WIDTH, WIDTH) for name in PLAIN}).double()
        for name in SPECIAL:
            self.layers[name] = (
                nn.Linear(WIDTH, WIDTH, dtype=torch.complex128)
                if is_complex
                else nn.Embedding(NUM_TOKENS, WIDTH, sparse=True, dtype=torch.float64)
            )
        self.order = order
        self.turn = {name: number for number, name in enumerate(sorted(order))}  # else all have the same gradient

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        return torch.stack([self._of(name, tokens).roll(self.turn[name], -1) for name in self.order]).sum(0)

    def _of(self, name: str, tokens: torch.Tensor) -> torch.Tensor:
        layer, x = self.layers[name], tokens.to(torch.float64) / NUM_TOKENS
        if name in PLAIN:
            plain: torch.Tensor = layer(x)
            return plain
        if self.is_complex:
            rotated: torch.Tensor = layer(torch.complex(x, x.flip(1)))
            return rotated.real - 0.5 * rotated.imag
        found: torch.Tensor = layer((tokens + self.turn[name]) % NUM_TOKENS)
        return found.mean(1)


class Crossings(Workload):
    def model(self, rank: int | None) -> nn.Module:
        names = [name for pair in zip(SPECIAL, PLAIN, strict=True) for name in pair]
        turn, backwards = divmod(rank or 0, 2)
        order = names[turn % len(names) :] + names[: turn % len(names)]
        return CrossingModel(order[::-1] if backwards else order, is_complex=self.is_complex)

    @property
    def is_complex(self) -> bool:
        return "complex128" in self.scenario.dtypes

    def in_one_order(self, model: nn.Module) -> None:
        assert isinstance(model, CrossingModel)
        model.order = [*model.layers]

    def optimizer(self) -> tuple[type[torch.optim.Optimizer], dict[str, Any]]:
        if self.is_complex:
            return super().optimizer()
        return torch.optim.SGD, {"lr": SGD_LR}  # no momentum: SGD's is not made for sparse gradients

    def batch(self, step: int, generator: torch.Generator) -> tuple[torch.Tensor, ...]:
        rows = self.scenario.samples_per_step
        tokens = torch.randint(NUM_TOKENS, (rows, WIDTH), generator=generator)
        return tokens, torch.randn(rows, WIDTH, generator=generator, dtype=torch.float64)

    def loss(self, output: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
        return (output - target).square().mean()


WORKLOAD = Crossings
