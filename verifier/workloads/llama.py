"""A small Llama in float64: RMSNorm, rotary attention, SwiGLU, and a head tied to the embedding.

Its last norm is a LayerNorm, because some strategies treat layers by type. Before it, a narrow path runs in parallel
with layers of 7 and 3: their shards need padding on any number of ranks, and some ranks have no part of them. They are
numbered from 8 to 11, as in a deep model: as text, 10 comes before 8. Each block registers its norms last, as
transformers' LlamaDecoderLayer does: parameters are used in another order than they are listed, on all ranks alike.

In float64 a correct strategy agrees with the single process to about 1e-13 of the largest gradient, and a wrong one
is off by 1e-6 or far more; nothing lies in between, so the bound needs no tuning.
Architecture: Touvron et al., "LLaMA", 2023 (https://arxiv.org/abs/2302.13971).
"""

from __future__ import annotations

from collections import OrderedDict

import torch
import torch.nn.functional as F
from torch import nn

from verifier.noise import Noise
from verifier.workload import Workload

VOCABULARY, WIDTH, HEADS, LAYERS, LENGTH = 48, 24, 2, 2, 12


class Block(nn.Module):
    def __init__(self, *, draws: bool = False) -> None:
        super().__init__()
        self.noise = Noise() if draws else nn.Identity()
        self.query_key_value = nn.Linear(WIDTH, 3 * WIDTH, bias=False)
        self.output = nn.Linear(WIDTH, WIDTH, bias=False)
        self.gate = nn.Linear(WIDTH, 2 * WIDTH, bias=False)
        self.up = nn.Linear(WIDTH, 2 * WIDTH, bias=False)
        self.down = nn.Linear(2 * WIDTH, WIDTH, bias=False)
        self.attention_norm = nn.RMSNorm(WIDTH)
        self.mlp_norm = nn.RMSNorm(WIDTH)

    def forward(self, x: torch.Tensor, rotation: torch.Tensor) -> torch.Tensor:
        rows, length, _ = x.shape
        parts = (
            self.query_key_value(self.attention_norm(self.noise(x))).view(rows, length, 3, HEADS, -1).transpose(1, 3)
        )
        query, key, value = rotate(parts[:, :, 0], rotation), rotate(parts[:, :, 1], rotation), parts[:, :, 2]
        attended = F.scaled_dot_product_attention(query, key, value, is_causal=True)
        x = x + self.output(attended.transpose(1, 2).reshape(rows, length, WIDTH))
        hidden = self.mlp_norm(x)
        return x + self.down(F.silu(self.gate(hidden)) * self.up(hidden))


def rotate(x: torch.Tensor, rotation: torch.Tensor) -> torch.Tensor:
    """Rotary position embedding of ``x`` (rows, heads, length, width) by ``rotation`` (2, length, width / 2)."""
    cos, sin = rotation
    even, odd = x.chunk(2, dim=-1)
    return torch.cat((even * cos - odd * sin, even * sin + odd * cos), dim=-1)


class Llama(nn.Module):
    rotation: torch.Tensor

    def __init__(self, *, draws: bool = False) -> None:
        super().__init__()
        self.embedding = nn.Embedding(VOCABULARY, WIDTH)
        self.blocks = nn.ModuleList(Block(draws=draws) for _ in range(LAYERS))
        narrow = nn.Linear(WIDTH, 7), nn.Tanh(), nn.Linear(7, 3), nn.Linear(3, WIDTH, bias=False)
        self.narrow = nn.Sequential(OrderedDict((str(8 + place), layer) for place, layer in enumerate(narrow)))
        self.norm = nn.LayerNorm(WIDTH)
        self.head = nn.Linear(WIDTH, VOCABULARY, bias=False)
        self.head.weight = self.embedding.weight
        frequency = 10_000.0 ** -torch.linspace(0, 1, WIDTH // HEADS // 2)
        angle = torch.outer(torch.arange(LENGTH), frequency)
        self.register_buffer("rotation", torch.stack((angle.cos(), angle.sin())))

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        x = self.embedding(tokens)
        for block in self.blocks:
            x = self.through(block, x)
        return self.head(self.norm(x + self.narrow(x)))

    def through(self, block: nn.Module, x: torch.Tensor) -> torch.Tensor:
        out: torch.Tensor = block(x, self.rotation)
        return out


class LlamaWorkload(Workload):
    def model(self, rank: int | None) -> nn.Module:
        return Llama(draws=self.scenario.draws).double()

    def batch(self, step: int, generator: torch.Generator) -> tuple[torch.Tensor, ...]:
        tokens = torch.randint(VOCABULARY, (self.scenario.samples_per_step, LENGTH + 1), generator=generator)
        return tokens[:, :-1], tokens[:, 1:]

    def loss(self, output: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
        return F.cross_entropy(output.flatten(0, 1), target.flatten())


WORKLOAD = LlamaWorkload
