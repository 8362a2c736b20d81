"""Oddities: parameters as they occur and are forgotten, in exact arithmetic.

They are tied (one tensor under two names), frozen, used twice in one forward, a scalar, a tensor of a single element,
one of three dimensions and one of five, a pair to which autograd gives the same gradient tensor, and many of equal
shape. The frozen part is larger than all trained parameters, as a backbone is, so reducing it is expensive. One buffer
is a mask and one a single number. Where only the start is judged, one buffer is a large count, and a frozen parameter
is in bytes, like quantised weights; elsewhere it is not, because an optimizer that is given those raises, which is
another question.
"""

from __future__ import annotations

import torch
from torch import nn

from verifier.workload import Workload, saw

FEATURES = 49  # the tied weight is most of what is trained, so that reducing it twice shows


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
        hidden = hidden + (self.twin_a + self.twin_b)  # autograd gives one tensor to both
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
