"""The benchmarks' workloads: three models that stress strategies differently, on random data.

``mlp``: few large tensors and a small batch. ``llama``: 10 to 30 million parameters in 100 to 300 tensors. ``cnn``:
eight small tensors, where only latency matters.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise

import torch
from torch import nn

from ddp_core.models import llama, mnist_cnn


def mlp() -> nn.Module:
    """2,361,600 parameters in 6 tensors."""
    sizes = (1024, 1024, 1024, 256)
    layers = [layer for a, b in pairwise(sizes) for layer in (nn.Linear(a, b), nn.ReLU())]
    return nn.Sequential(*layers[:-1])


def small_llama() -> nn.Module:
    """22.8 million parameters in 110 tensors."""
    return llama(vocab_size=4096, hidden_size=384, num_layers=12, num_heads=6, num_kv_heads=6, intermediate_size=1024)


WORKLOADS: dict[str, tuple[Callable[[], nn.Module], Callable[[], torch.Tensor]]] = {
    "mlp": (mlp, lambda: torch.randn(16, 1024)),
    "llama": (small_llama, lambda: torch.randint(0, 4096, (2, 64))),
    "cnn": (mnist_cnn, lambda: torch.randn(64, 1, 28, 28)),
}
