"""The lab's workloads, by name: from eight small tensors to the 362 million parameters of SmolLM2-360M.

Special here: a workload is a model, a batch per rank and a loss. Weights are random, because no time depends on them.
Data is random, too, except for ``digits``, which has real scans. Nothing is downloaded.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import torch
import torch.nn.functional as F
from torch import nn

from ddp_core.models import llama, mnist_cnn, smollm2_360m
from verifier import catalogue
from verifier.errors import UnknownName
from verifier.request import Builtin
from verifier.scenario import Scenario

Batch = tuple[torch.Tensor, torch.Tensor]


@dataclass(frozen=True)
class LabWorkload:
    """``batch(rank)`` is one micro-batch: inputs and targets. ``loss(output, target)`` is its mean."""

    summary: str
    model: Callable[[], nn.Module]
    batch: Callable[[int], Batch]
    loss: Callable[[Any, torch.Tensor], torch.Tensor]
    steps_per_round: int


def _mlp() -> nn.Module:
    sizes = (1024, 1024, 1024, 256)
    layers = [layer for a, b in pairwise(sizes) for layer in (nn.Linear(a, b), nn.ReLU())]
    return nn.Sequential(*layers[:-1])


def _small_llama() -> nn.Module:
    return llama(vocab_size=4096, hidden_size=384, num_layers=12, num_heads=6, num_kv_heads=6, intermediate_size=1024)


def _digits() -> Any:
    scenario = Scenario(name="lab", situation="digits", workload="digits", strategy=Builtin(name="naive"), world_size=1)
    return catalogue.WORKLOADS.load("digits").WORKLOAD(scenario)


def _digits_batch(rank: int) -> Batch:
    images, digits = _digits().scans
    return images[64 * rank :][:64], digits[64 * rank :][:64]


def _tokens(vocabulary: int, rows: int, length: int) -> Callable[[int], Batch]:
    def batch(rank: int) -> Batch:
        tokens = torch.randint(0, vocabulary, (rows, length + 1), generator=torch.Generator().manual_seed(rank))
        return tokens[:, :-1], tokens[:, 1:]

    return batch


def _noise(shape: tuple[int, ...], num_classes: int) -> Callable[[int], Batch]:
    def batch(rank: int) -> Batch:
        generator = torch.Generator().manual_seed(rank)
        return torch.randn(shape, generator=generator), torch.randint(0, num_classes, shape[:1], generator=generator)

    return batch


def _next_token(output: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
    return F.cross_entropy(output.flatten(0, 1), target.flatten())


WORKLOADS: dict[str, LabWorkload] = {
    "mlp": LabWorkload(
        "2.4 million parameters in 6 tensors, 16 rows: few large tensors", _mlp, _noise((16, 1024), 256),
        F.cross_entropy, 6),
    "cnn": LabWorkload(
        "206,922 parameters in 8 tensors, 64 images like MNIST's: latency is all", mnist_cnn,
        _noise((64, 1, 28, 28), 10), F.cross_entropy, 6),
    "digits": LabWorkload(
        "a small CNN in float64 on 64 real scans of digits (needs scikit-learn)", lambda: _digits().model(None),
        _digits_batch, F.cross_entropy, 10),
    "llama": LabWorkload(
        "22.8 million parameters in 110 tensors, 2 rows of 64 tokens", _small_llama, _tokens(4096, 2, 64),
        _next_token, 2),
    "smollm2-360m": LabWorkload(
        "SmolLM2-360M from its configuration: 362 million parameters in 290 tensors, 1 row of 16 tokens",
        smollm2_360m, _tokens(49152, 1, 16), _next_token, 1),
}  # fmt: skip


def workload(name: str) -> LabWorkload:
    """The workload called ``name``. Raises UnknownName, which lists all names."""
    if name not in WORKLOADS:
        raise UnknownName("workload of the lab", name, WORKLOADS)
    return WORKLOADS[name]
