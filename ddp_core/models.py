"""The models of the published measurements, on torch alone: a CNN for MNIST and SmolLM2-360M. Nothing is downloaded.

Special here: parameters of the language model have the names of Hugging Face's Llama, so its checkpoints load with
``load_state_dict`` (without ``lm_head.weight``, a second name of the embedding). ``device="meta"`` builds a model
without memory, for counting tensors and planning buckets.
"""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import nn


def mnist_cnn() -> nn.Sequential:
    """Two convolutions and two linear layers for images (N, 1, 28, 28); logits (N, 10). 206,922 parameters, 8 tensors.

    Widths of 16, 32 and 128 are the only powers of two that give this published number of parameters.
    """
    return nn.Sequential(
        nn.Conv2d(1, 16, 3, padding=1),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Conv2d(16, 32, 3, padding=1),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Flatten(),
        nn.Linear(32 * 7 * 7, 128),
        nn.ReLU(),
        nn.Linear(128, 10),
    )


def smollm2_360m(*, num_labels: int | None = None, device: Any = None, dtype: torch.dtype | None = None) -> Llama:
    """SmolLM2-360M from its published configuration, with random weights. 361,821,120 parameters, 290 tensors.

    ``num_labels`` replaces the tied language-model head by a classifier of the last token: one tensor more.
    """
    return llama(
        vocab_size=49152,
        hidden_size=960,
        num_layers=32,
        num_heads=15,
        num_kv_heads=5,
        intermediate_size=2560,
        rope_theta=100_000.0,
        num_labels=num_labels,
        device=device,
        dtype=dtype,
    )


def llama(
    *,
    vocab_size: int,
    hidden_size: int,
    num_layers: int,
    num_heads: int,
    num_kv_heads: int,
    intermediate_size: int,
    rope_theta: float = 10_000.0,
    num_labels: int | None = None,
    device: Any = None,
    dtype: torch.dtype | None = None,
) -> Llama:
    """A Llama of any size: rotary positions, grouped-query attention, SwiGLU, tied embeddings.

    Raises ValueError if heads do not divide the hidden size, or key-value heads the heads.
    """
    if hidden_size % num_heads or num_heads % num_kv_heads:
        raise ValueError(
            f"hidden_size {hidden_size} must be a multiple of num_heads {num_heads}, "
            f"and that a multiple of num_kv_heads {num_kv_heads}"
        )
    with torch.device(device or torch.get_default_device()):
        layers = [
            Layer(Attention(hidden_size, num_heads, num_kv_heads), hidden_size, intermediate_size)
            for _ in range(num_layers)
        ]
        model = Llama(vocab_size, hidden_size, layers, rope_theta, num_labels)
    return model if dtype is None else model.to(dtype)


class Llama(nn.Module):
    """Token ids (N, T), int64 -> logits (N, T, vocab), or (N, labels) of each row's last token that is not padding.

    Padding goes on the right, where causal attention never looks at it from a real token.
    """

    def __init__(
        self, vocab_size: int, hidden_size: int, layers: list[Layer], rope_theta: float, num_labels: int | None
    ) -> None:
        super().__init__()
        self.model = nn.Module()
        self.model.embed_tokens = nn.Embedding(vocab_size, hidden_size)
        self.model.layers = nn.ModuleList(layers)
        self.model.norm = nn.RMSNorm(hidden_size, eps=1e-5)
        self.rope_theta, self.head_size = rope_theta, layers[0].self_attn.head_size
        self.score = None if num_labels is None else nn.Linear(hidden_size, num_labels, bias=False)
        for name, parameter in self.named_parameters():
            if "norm" not in name:
                nn.init.normal_(parameter, std=0.02)

    def forward(self, input_ids: torch.Tensor, attention_mask: torch.Tensor | None = None) -> torch.Tensor:
        embedding = self.model.get_submodule("embed_tokens")
        hidden: torch.Tensor = embedding(input_ids)
        turn = rotations(input_ids.shape[1], self.head_size, self.rope_theta, hidden)
        for layer in self.model.get_submodule("layers").children():
            hidden = layer(hidden, turn)
        hidden = self.model.get_submodule("norm")(hidden)
        if self.score is None:
            return F.linear(hidden, embedding.get_parameter("weight"))
        rows = torch.arange(len(input_ids), device=input_ids.device)
        last = -1 if attention_mask is None else attention_mask.sum(1) - 1
        logits: torch.Tensor = self.score(hidden[rows, last])
        return logits


class Layer(nn.Module):
    """Attention and a SwiGLU feed-forward part, each behind an RMSNorm and beside a residual connection."""

    def __init__(self, attention: Attention, hidden_size: int, intermediate_size: int) -> None:
        super().__init__()
        self.self_attn = attention
        self.mlp = FeedForward(hidden_size, intermediate_size)
        self.input_layernorm = nn.RMSNorm(hidden_size, eps=1e-5)
        self.post_attention_layernorm = nn.RMSNorm(hidden_size, eps=1e-5)

    def forward(self, hidden: torch.Tensor, turn: tuple[torch.Tensor, torch.Tensor]) -> torch.Tensor:
        hidden = hidden + self.self_attn(self.input_layernorm(hidden), turn)
        output: torch.Tensor = hidden + self.mlp(self.post_attention_layernorm(hidden))
        return output


class FeedForward(nn.Module):
    def __init__(self, hidden_size: int, intermediate_size: int) -> None:
        super().__init__()
        self.gate_proj = nn.Linear(hidden_size, intermediate_size, bias=False)
        self.up_proj = nn.Linear(hidden_size, intermediate_size, bias=False)
        self.down_proj = nn.Linear(intermediate_size, hidden_size, bias=False)

    def forward(self, hidden: torch.Tensor) -> torch.Tensor:
        output: torch.Tensor = self.down_proj(F.silu(self.gate_proj(hidden)) * self.up_proj(hidden))
        return output


class Attention(nn.Module):
    """Causal attention in which several heads share one key and one value (grouped queries)."""

    def __init__(self, hidden_size: int, num_heads: int, num_kv_heads: int) -> None:
        super().__init__()
        self.head_size = hidden_size // num_heads
        self.q_proj = nn.Linear(hidden_size, num_heads * self.head_size, bias=False)
        self.k_proj = nn.Linear(hidden_size, num_kv_heads * self.head_size, bias=False)
        self.v_proj = nn.Linear(hidden_size, num_kv_heads * self.head_size, bias=False)
        self.o_proj = nn.Linear(num_heads * self.head_size, hidden_size, bias=False)

    def forward(self, hidden: torch.Tensor, turn: tuple[torch.Tensor, torch.Tensor]) -> torch.Tensor:
        query, key, value = (
            projection(hidden).unflatten(-1, (-1, self.head_size)).transpose(1, 2)  # (N, heads, T, head size)
            for projection in (self.q_proj, self.k_proj, self.v_proj)
        )
        query, key = rotate(query, turn), rotate(key, turn)
        mixed = F.scaled_dot_product_attention(query, key, value, is_causal=True, enable_gqa=True)
        output: torch.Tensor = self.o_proj(mixed.transpose(1, 2).flatten(2))
        return output


def rotations(length: int, head_size: int, theta: float, like: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Cosines and sines (length, head_size) of the rotary position embedding (Su et al., arXiv:2104.09864)."""
    exponents = torch.arange(0, head_size, 2, device=like.device, dtype=torch.float32) / head_size
    angles = torch.outer(torch.arange(length, device=like.device, dtype=torch.float32), 1.0 / theta**exponents)
    angles = torch.cat([angles, angles], dim=-1)
    return angles.cos().to(like.dtype), angles.sin().to(like.dtype)


def rotate(heads: torch.Tensor, turn: tuple[torch.Tensor, torch.Tensor]) -> torch.Tensor:
    """Rotate each pair (i, i + half) of the last axis by its position's angle."""
    cosine, sine = turn
    first, second = heads.chunk(2, dim=-1)
    return heads * cosine + torch.cat([-second, first], dim=-1) * sine
