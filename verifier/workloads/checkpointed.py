"""Checkpointed: the small Llama, its blocks under activation checkpointing (not re-entrant), in float64.

Backward runs each block's forward again, and the hooks of its parameters fire inside that.
"""

from __future__ import annotations

import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

from verifier.workloads.llama import Llama, LlamaWorkload


class CheckpointedLlama(Llama):
    def through(self, block: nn.Module, x: torch.Tensor) -> torch.Tensor:
        out: torch.Tensor = checkpoint(block, x, self.rotation, use_reentrant=False)
        return out


class Checkpointed(LlamaWorkload):
    def model(self, rank: int | None) -> nn.Module:
        return CheckpointedLlama().double()


WORKLOAD = Checkpointed
