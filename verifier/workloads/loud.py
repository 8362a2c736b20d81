"""Loud: gradients of some 40,000 with the same sign on every rank, in exact arithmetic.

float16 can hold their mean (its largest number is 65,504), but on two ranks or more not their sum: a strategy that adds
up in float16 first and divides afterwards gets infinities. In wider dtypes nothing happens.
"""

from __future__ import annotations

import torch
from torch import nn

from verifier.workload import Workload

NEAR, APART = 40_000, 4_000


class Loud(Workload):
    exact = True

    def model(self, rank: int | None) -> nn.Module:
        model = nn.Linear(4, 3)
        for parameter in model.parameters():
            with torch.no_grad():
                parameter.copy_(torch.randint(-2, 3, parameter.shape) / 2)
        return model

    def batch(self, step: int, generator: torch.Generator) -> tuple[torch.Tensor, ...]:
        rows, ranks = self.scenario.samples_per_step, self.scenario.world_size
        inputs = torch.randint(0, 2, (rows, 4), generator=generator).float()
        targets = torch.randint(NEAR - APART, NEAR + APART, (rows, 3), generator=generator)
        return inputs, (targets // ranks * ranks).float()  # so that means over ranks are exact

    def loss(self, output: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
        return (output * target).sum() / len(target)


WORKLOAD = Loud
