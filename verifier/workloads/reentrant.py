"""Re-entrant: the small Llama under re-entrant activation checkpointing, in float64; its head as well.

Backward runs a nested backward for each block, and the very first hook fires inside one: a callback queued for the end
of the backward then runs at the end of the innermost one. Only the embedding is outside. If the scenario says ``tied``,
its weight is also the head's, and its gradient arrives in two parts.
"""

from __future__ import annotations

import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

from verifier.workloads.llama import VOCABULARY, WIDTH, Llama, LlamaWorkload


class ReentrantLlama(Llama):
    def __init__(self, *, tied: bool) -> None:
        super().__init__()
        if not tied:
            self.head = nn.Linear(WIDTH, VOCABULARY, bias=False)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        x = self.embedding(tokens)
        for block in self.blocks:
            x = checkpoint(block, x, self.rotation, use_reentrant=True)
        out: torch.Tensor = checkpoint(self.top, x, use_reentrant=True)
        return out

    def top(self, x: torch.Tensor) -> torch.Tensor:
        out: torch.Tensor = self.head(self.norm(x + self.narrow(x)))
        return out


class Reentrant(LlamaWorkload):
    def model(self, rank: int | None) -> nn.Module:
        return ReentrantLlama(tied=self.scenario.tied).double()


WORKLOAD = Reentrant
