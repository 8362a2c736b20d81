"""Structured: a model that returns a dict with a tuple in it, and may take an input by name, as language models do.

If it takes no input by name, the dict is an ``OrderedDict`` and the tuple a named tuple: subtypes, which code that
compares exact types does not look into. If it does, a list is returned in the dict's place. If the scenario says so,
the output is a dataclass. The inputs given by name are a tensor and a number.

Some parameters are reached only through one part of the output, some only through the other. The first and the last
tensor of the output are in no loss, though they require gradients, as hidden states do. A hook of the model halves its
input; calling ``model.forward`` instead of the model bypasses it. In float64.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import nn

from verifier.workload import Workload


class Parts(NamedTuple):
    hidden: torch.Tensor
    side: torch.Tensor


def _halved(model: nn.Module, inputs: tuple[torch.Tensor, ...]) -> tuple[torch.Tensor, ...]:
    return (inputs[0] / 2, *inputs[1:])


NAMES = ("hidden", "logits", "parts", "sum")


def _listed(**parts: Any) -> list[Any]:
    return [*parts.values()]


@dataclass
class Output:
    hidden: torch.Tensor
    logits: torch.Tensor
    parts: tuple[torch.Tensor, torch.Tensor]
    sum: torch.Tensor


class StructuredModel(nn.Module):
    def __init__(self, kind: Callable[..., Any]) -> None:
        super().__init__()
        self.kind = kind
        self.inlet = nn.Linear(6, 8)
        self.head = nn.Linear(8, 3)
        self.side = nn.Linear(8, 3)
        self.register_forward_pre_hook(_halved)

    def forward(self, x: torch.Tensor, *, gain: torch.Tensor | None = None, share: float = 1.0) -> Any:
        hidden = torch.tanh(self.inlet(x))
        logits = self.head(hidden)
        logits = logits if gain is None else logits * gain
        parts = hidden.detach(), self.side(hidden) * share
        return self.kind(
            hidden=hidden.square(),
            logits=logits,
            parts=Parts(*parts) if self.kind is OrderedDict else parts,
            sum=hidden.sum(),
        )


class Structured(Workload):
    def model(self, rank: int | None) -> nn.Module:
        return StructuredModel(self.kind).double()

    @property
    def kind(self) -> Callable[..., Any]:
        """The type that the model returns."""
        if self.scenario.dataclass_outputs:
            return Output
        return _listed if self.scenario.list_outputs or self.scenario.named_inputs else OrderedDict

    def batch(self, step: int, generator: torch.Generator) -> tuple[torch.Tensor, ...]:
        sizes = (6, 1, 3) if self.scenario.named_inputs else (6, 3)
        rows = self.scenario.samples_per_step
        return tuple(torch.randn(rows, size, generator=generator, dtype=torch.float64) for size in sizes)

    def call(self, forward: Callable[..., Any], inputs: Sequence[torch.Tensor]) -> Any:
        return forward(inputs[0], gain=inputs[1], share=0.5) if self.scenario.named_inputs else forward(*inputs)

    def require_alike(self, output: Any) -> None:
        asked = "a dataclass" if self.kind is Output else "a list" if self.kind is _listed else "a dict"
        if {*_named(output)} != {*NAMES}:
            kind = type(output).__name__
            raise TypeError(
                f"the wrapped model returned a {kind}; the model itself returns {asked} of tensors and a tuple"
            )

    def loss(self, output: Any, target: torch.Tensor) -> torch.Tensor:
        output = _named(output)
        return (output["logits"] - target).square().mean() + (output["parts"][1] + target).square().mean()


def _named(output: Any) -> Mapping[str, Any]:
    """The parts of ``output`` by name; empty if it is no mapping, no ``Output``, and no list of as many."""
    if isinstance(output, Mapping):
        return output
    if isinstance(output, list) and len(output) == len(NAMES):
        return dict(zip(NAMES, output, strict=True))
    return vars(output) if isinstance(output, Output) else {}


WORKLOAD = Structured
