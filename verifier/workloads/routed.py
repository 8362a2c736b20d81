"""Routed: samples choose which branch they take, so that a rank may not use a parameter that others use.

All samples of a rank take one branch, by turns, so each branch is used by some ranks only, in each step by others. No
rank uses the last branch before the last step but one (of two steps: before the second), so a list of the parameters
used in the first steps lacks it. No rank ever uses ``never``, like a head that this task does not train, nor the first
parameter and the last, a mask token and another head, to which wrappers attach work that is done once a backward.
``gated`` runs everywhere and counts for some samples only, as weighted experts do: on the other ranks its gradient is
zeros, and not None. In exact arithmetic, in float64: the single process, which sees all samples, uses all branches that
any rank does, and its gradient of ``never`` is None. One situation has a single step of it in float32. One has branches
in float16 and bfloat16, where factors are rounded and nothing is exact, and a rank lacks one of the dtypes altogether.
In another the branches' weights are in column-major order. In one there are many branches, of which the first, the
middle and the last are taken and no others. Where there are many steps, rank 0 takes two branches in the first, and the
last rank in the second, so the number of parameters that a rank uses changes as well. So it is where there are but two
branches; then nothing is left that no rank uses, and those ranks use every parameter.

With several micro-batches, the first or the last one uses what the others do not, in turns, so a strategy that decides
what to synchronise by the backward that synchronises, or by the last two, misses some. Where each may synchronise,
ranks exchange branches between two micro-batches.
"""

from __future__ import annotations

import torch
from torch import nn

from verifier.workload import Workload, column_major

NUM_BRANCHES = 3
TWO = 2  # branches
MANY_STEPS = 6


class RoutedModel(nn.Module):
    def __init__(self, num_branches: int) -> None:
        super().__init__()
        if num_branches > TWO:
            self.first = nn.Parameter(torch.empty(6))
        self.inlet = nn.Linear(6, 6)
        self.branches = nn.ModuleList(nn.Linear(6, 6) for _ in range(num_branches))
        self.taken = (0, num_branches // 2, num_branches - 1)  # by route
        self.gated = nn.Linear(6, 6)
        if num_branches > TWO:
            self.never = nn.Linear(6, 6)
        self.outlet = nn.Linear(6, 3)
        if num_branches > TWO:
            self.last = nn.Linear(3, 3)
        for parameter in self.parameters():
            with torch.no_grad():
                parameter.copy_(torch.randint(-2, 3, parameter.shape) / 2)

    def forward(self, rows: torch.Tensor) -> torch.Tensor:
        x, route = rows[:, :-1], rows[:, -1]
        hidden = self.inlet(x)
        for number, place in enumerate(self.taken):
            taken, branch = route == number, self.branches[place]
            if taken.any():  # a branch that no sample takes is not run at all
                dtype = branch.weight.dtype
                hidden = hidden.index_put((taken,), branch(hidden[taken].to(dtype)).to(hidden.dtype))
        hidden = hidden + self.gated(x) * (route == 0).unsqueeze(1)
        return self.outlet(hidden)


class Routed(Workload):
    @property
    def exact(self) -> bool:  # type: ignore[override]  # float16 does not hold the product with a rounded factor
        return not (self._has_halves or self.scenario.new_lr_after or self.scenario.clip_norm)  # small rates round

    @property
    def _has_halves(self) -> bool:
        return len(self.scenario.dtypes) == NUM_BRANCHES

    def model(self, rank: int | None) -> nn.Module:
        model = RoutedModel(self.scenario.depth or NUM_BRANCHES).to(self.dtype)
        if self._has_halves:
            for branch, dtype in zip(model.branches, self.scenario.dtypes, strict=True):
                branch.to(getattr(torch, dtype))
        if self.scenario.column_major:
            for branch in model.branches:
                assert isinstance(branch, nn.Linear)
                branch.weight = column_major(branch.weight)
        return model

    @property
    def dtype(self) -> torch.dtype:
        return torch.float32 if self.scenario.dtypes == ("float32",) else torch.float64

    def batch(self, step: int, generator: torch.Generator) -> tuple[torch.Tensor, ...]:
        rows = self.scenario.samples_per_step
        inputs = torch.randint(-2, 3, (rows, 6), generator=generator).to(self.dtype)
        rank, micro = self._whose(rows)
        targets = torch.randint(-2, 3, (rows, 3), generator=generator).to(self.dtype)
        if self.scenario.num_micro_batches == 1:
            route = (rank + step) % (3 if step >= self._first_use else 2)
            return _with(inputs, torch.where(self._takes_two(rank, step), torch.arange(rows) % 2, route)), targets
        if not self.scenario.use_no_sync:  # each backward may synchronise: what a rank used first, another uses next
            return _with(inputs, (rank + step + micro) % 2), targets
        apart = 0 if step % 2 == 0 else self.scenario.num_micro_batches - 1
        return _with(inputs, torch.where(micro == apart, (rank + step) % 2, 2)), targets

    def _takes_two(self, rank: torch.Tensor, step: int) -> torch.Tensor:
        """Whether each row's rank takes two branches in ``step``."""
        some_do = self.scenario.num_steps >= MANY_STEPS or self.scenario.depth == TWO
        return rank == ({0: 0, 1: self.scenario.world_size - 1}.get(step, -1) if some_do else -1)

    @property
    def _first_use(self) -> int:
        """The step in which the last branch is first used."""
        return max(1, self.scenario.num_steps - 2)

    def _whose(self, rows: int) -> tuple[torch.Tensor, torch.Tensor]:
        """The rank and the micro-batch that each row goes to."""
        num_micro = self.scenario.num_micro_batches
        part = torch.arange(rows) // (rows // (self.scenario.world_size * num_micro))
        return part // num_micro, part % num_micro

    def loss(self, output: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
        # Exact even if each micro-batch's gradients are averaged together with earlier ones. Not in half precision: it
        # has fewer bits, and in a larger batch it rounds differently.
        size = self.scenario.world_size ** (1 if self._has_halves else self.scenario.num_micro_batches)
        return (output * target).sum() * size / len(target)


def _with(inputs: torch.Tensor, route: torch.Tensor) -> torch.Tensor:
    """Return ``inputs`` with each row's route as a last column: many a wrapper takes a single input."""
    return torch.cat([inputs, route.unsqueeze(1).to(inputs.dtype)], 1)


WORKLOAD = Routed
