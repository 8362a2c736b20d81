"""Oddities: parameters as they occur and are forgotten, in exact arithmetic.

Tied (one tensor under two names), frozen, used twice in one forward, a scalar, a tensor of one odd element, one of
three dimensions and one of five, a pair that gets one and the same gradient tensor from autograd, and many of equal
shape.
What is frozen is larger than all that is trained, as a backbone is: whoever reduces it, too, pays for it. Of the
buffers one is a mask and one a single number. Where only the start is judged, one is a large count, and a frozen
parameter is in bytes, as quantised weights are: an optimizer that is handed those raises, and that is another question.
"""

from __future__ import annotations

import torch
from torch import nn

from verifier.workload import Workload, saw

FEATURES = 49  # so many that the tied weight is most of what is trained: reduced once more, it shows


class OddModel(nn.Module):
    order: torch.Tensor
    mask: torch.Tensor
    gain: torch.Tensor

    def __init__(self, *, quantised: bool) -> None:
        super().__init__()
        self.embedding = nn.Linear(FEATURES, 5, bias=False)
        self.frozen = nn.Sequential(nn.Linear(5, 40), nn.Linear(40, 5))
        self.twice = nn.Linear(5, 5)
        self.twin_a = nn.Parameter(torch.empty(5))
        self.twin_b = nn.Parameter(torch.empty(5))
        self.scale = nn.Parameter(torch.empty(()))
        self.single = nn.Parameter(torch.empty(1))
        self.experts = nn.Parameter(torch.empty(2, 5, 5))
        self.kernel = nn.Parameter(torch.empty(1, 5, 1, 1, 1))
        self.head = nn.Linear(FEATURES, 5, bias=False)
        for parameter in self.parameters():
            with torch.no_grad():
                parameter.copy_(torch.randint(-2, 3, parameter.shape) / 2)
        with torch.no_grad():
            self.scale.fill_(1.0)
        self.head.weight = self.embedding.weight
        self.frozen.requires_grad_(False)
        self.register_buffer("order", torch.randperm(40))
        self.register_buffer("mask", torch.rand(40) < 0.75)
        self.register_buffer("gain", torch.randint(1, 2**20 if quantised else 5, ()) / 2)  # no two ranks draw the same
        if quantised:
            self.levels = nn.Parameter(torch.randint(0, 256, (5,), dtype=torch.uint8), requires_grad=False)
            self.register_buffer("num_seen", torch.randint(2**24, 2**52, ()) | 1)  # in float64 exact, in float32 not

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        saw("frozen.0.weight", next(self.frozen.parameters()))
        for name, buffer in self.named_buffers():
            saw(name, buffer)
        hidden = self.frozen[1](self.frozen[0](self.embedding(x))[:, self.order] * self.mask) * self.gain
        if hasattr(self, "levels"):
            saw("levels", self.levels)
            hidden = hidden + self.levels
        hidden = self.twice(self.twice(hidden))
        hidden = hidden + (self.twin_a + self.twin_b)  # autograd hands one tensor to both
        hidden = torch.einsum("bi,eio->bo", hidden, self.experts) + self.kernel.flatten()
        return (hidden * self.scale + self.single) @ self.head.weight


class Oddities(Workload):
    exact = True

    def model(self, rank: int | None) -> nn.Module:
        return OddModel(quantised=not self.scenario.same_start).double()

    def batch(self, step: int, generator: torch.Generator) -> tuple[torch.Tensor, ...]:
        rows = self.scenario.samples_per_step
        inputs = torch.randint(-1, 2, (rows, FEATURES), generator=generator).double()
        targets = torch.randint(-1, 2, (rows, FEATURES), generator=generator).double()
        return inputs, targets

    def loss(self, output: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
        return (output * target).sum() * self.scenario.world_size / len(target)


WORKLOAD = Oddities
