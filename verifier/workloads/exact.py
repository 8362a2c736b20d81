"""Exact arithmetic: an MLP of small integers, so that "equal" can mean bit for bit, in float32.

Weights are multiples of 1/2 between -1 and 1, inputs are integers, and the loss is linear in the output and multiplied
by the world size. So sums are exact in any order, and the mean over ranks is a whole multiple of the grid, also for 3,
5 or 7 ranks. float32 has enough bits for about one step; runs of several steps are in float64.

Same-shape siblings (``left``, ``right``) and an odd-sized layer are there because swaps between equal shapes go
unnoticed elsewhere. Integers often meet a relu at exactly 0, where rounding in a previous step would decide whether a
whole gradient passes, so values next to 0 count as 0. A buffer (``shift.by``) is read in forward and reported, because
wrappers that think of parameters alone forget it; a module of its own reads it, whose hooks have run by then. If the
scenario says so, odd ranks register the siblings in another order, and nothing else differs.
"""

from __future__ import annotations

import torch
from torch import nn
from torch.nn.functional import threshold

from verifier.workload import Workload, saw

HAIR = 2.0**-20  # far more than float64 rounding in a few steps, far less than any value that occurs


class Shift(nn.Module):
    by: torch.Tensor

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        saw("shift.by", self.by)
        return x + self.by


class ExactModel(nn.Module):
    left: nn.Linear
    right: nn.Linear
    narrow: torch.dtype | None = None  # ``left``'s dtype, if another; its weight may be away between forwards

    def __init__(self, *, right_first: bool = False) -> None:
        super().__init__()
        self.inlet = nn.Linear(6, 8)
        for name in ("right", "left") if right_first else ("left", "right"):
            setattr(self, name, nn.Linear(8, 8))
        self.odd = nn.Linear(8, 7, bias=False)
        self.outlet = nn.Linear(7, 3, bias=False)  # 277 numbers in all, a prime: no world size divides them
        for _, parameter in sorted(self.named_parameters()):  # by name: the same numbers in any registration order
            with torch.no_grad():
                parameter.copy_(torch.randint(-2, 3, parameter.shape) / 2)
        self.shift = Shift()
        self.shift.register_buffer("by", torch.randint(-2, 3, (6,)).float())

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        hidden = threshold(self.inlet(self.shift(x)), HAIR, 0.0)
        left = self.left(hidden if self.narrow is None else hidden.to(self.narrow)).to(hidden.dtype)
        hidden = threshold(left, HAIR, 0.0) - self.right(hidden)
        return self.outlet(self.odd(hidden))


class Exact(Workload):
    exact = True

    def model(self, rank: int | None) -> nn.Module:
        model = ExactModel(right_first=not self.scenario.same_registration and rank is not None and rank % 2 == 1)
        model = model.to(self.dtype)
        for name in self.scenario.dtypes:
            model.narrow = getattr(torch, name)
            model.left.to(model.narrow)  # one of the largest, which gets the infinity
        return model

    @property
    def dtype(self) -> torch.dtype:
        scenario = self.scenario
        few = scenario.num_steps == 1 or scenario.overflow or scenario.infinite_loss  # later numbers do not matter
        return torch.float32 if few else torch.float64

    def batch(self, step: int, generator: torch.Generator) -> tuple[torch.Tensor, ...]:
        rows = self.scenario.samples_per_step
        inputs = torch.randint(-2, 3, (rows, 6), generator=generator).to(self.dtype)
        targets = torch.randint(-2, 3, (rows, 3), generator=generator).to(self.dtype)
        return inputs, targets

    def loss(self, output: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
        return (output * target).sum() * self.scenario.world_size / len(target)

    def begin(self, model: nn.Module) -> None:
        if self.scenario.change == "unfreeze":
            model.get_submodule("odd").requires_grad_(False)

    def change(self, model: nn.Module) -> None:
        """Freeze what was trained so far, train what was frozen, or put a new layer in an old one's place."""
        if self.scenario.change == "replace":
            model.odd = _turned_round(model.get_submodule("odd"))
        else:
            model.get_submodule("odd").requires_grad_(self.scenario.change == "unfreeze")


def _turned_round(layer: nn.Module) -> nn.Linear:
    """A new layer with the negated weights of ``layer``: equal on all ranks if those are."""
    weight = -layer.get_parameter("weight").detach()
    new = nn.Linear(weight.shape[1], weight.shape[0], bias=False, dtype=weight.dtype)
    new.weight = nn.Parameter(weight)
    return new


WORKLOAD = Exact
