"""Branches: independent layers of equal size, visited in an order that differs from rank to rank.

Legal, and common: a branch chosen by the data, an expert, a task head. The result is the same; the order in which
gradients become ready is not, because autograd visits first what was used last. A wrapper that fills buckets in
arrival order adds up different parameters here.

Odd ranks use the reverse order, because a rotation alone leaves the first half of the branches first on both of two
ranks: buckets of half the model each would then be ready in the same order everywhere.

If a strategy disclaims ``branch_order``, all ranks use one order, except where a situation is about just that.

Mostly used with tagged gradients, for which the numbers of the forward pass do not matter. Scenarios choose the number
of branches and their width: mistakes at the edges of a bucket of 25 MB, or with the hundredth parameter, need models of
that size. Their weights rise by equal steps, as tags do, and still do so after a step by a power of two, so that 42 MB
are recorded in some kilobytes (``ramps``).
"""

from __future__ import annotations

import torch
from torch import nn

from verifier.workload import Workload

STEP = 2.0**-22
DIRECTIONS = ["north", "east", "south", "west"]


class BranchModel(nn.Module):
    def __init__(self, order: list[str], width: int, dtype: torch.dtype = torch.float32) -> None:
        super().__init__()
        self.branches = nn.ModuleDict({name: nn.Linear(width, width, dtype=dtype) for name in sorted(order)})
        self.order = order
        self.turn = {name: number for number, name in enumerate(sorted(order))}  # else all have the same gradient

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.stack([self.branches[name](x).roll(self.turn[name], -1) for name in self.order]).sum(0)


class Branches(Workload):
    def model(self, rank: int | None) -> nn.Module:
        names = [f"branch_{number}" for number in range(self.scenario.depth)] if self.scenario.depth else DIRECTIONS
        turn, backwards = divmod(rank or 0, 2)
        order = names[turn % len(names) :] + names[: turn % len(names)]
        order = order[::-1] if backwards else order
        if self.width <= 6 and not self.scenario.depth:
            return BranchModel(order, self.width)
        with torch.device("meta"):  # drawing 42 MB of numbers to overwrite costs as much as a step
            model = BranchModel(order, self.width, torch.float64)  # large codes need more bits
        return rising(model)

    def in_one_order(self, model: nn.Module) -> None:
        assert isinstance(model, BranchModel)
        model.order = [*model.branches]

    @property
    def width(self) -> int:
        return self.scenario.width or 6

    def batch(self, step: int, generator: torch.Generator) -> tuple[torch.Tensor, ...]:
        rows = self.scenario.samples_per_step
        dtype = torch.float64 if self.width > 6 or self.scenario.depth else torch.float32
        shape = (rows, self.width)
        return torch.randn(shape, generator=generator, dtype=dtype), torch.randn(
            shape, generator=generator, dtype=dtype
        )

    def loss(self, output: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
        return (output - target).square().mean()


def rising(model: nn.Module) -> nn.Module:
    """Give ``model`` new parameters, each element a step above the one before; the seed decides where they begin."""
    number = int(torch.randint(2**20, ()))
    for module in model.modules():
        for name, parameter in module.named_parameters(recurse=False):
            codes = torch.arange(number, number + parameter.numel(), dtype=parameter.dtype).mul_(STEP)
            setattr(module, name, nn.Parameter(codes.view(parameter.shape)))
            number += parameter.numel()
    return model


WORKLOAD = Branches
