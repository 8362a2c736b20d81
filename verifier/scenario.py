"""One experiment, fully described: what is trained, on how many ranks, with which strategy, under which conditions.

Special here: a scenario is plain frozen data with no torch in it. It is saved beside its recording, so that a
recording can be judged next year without knowing the request.
"""

from __future__ import annotations

import math
from pathlib import Path
from typing import Literal

from pydantic import Field

from verifier.conditions import (
    OfClaims,
    OfForwards,
    OfInterruptions,
    OfLargeNumbers,
    OfObserving,
    OfRanks,
    OfTheModel,
    OfTheOptimizer,
)
from verifier.files import read_model
from verifier.request import StrategyRef

SGD_LR, SGD_MOMENTUM = 0.125, 0.5  # powers of two: exact arithmetic stays exact
DECAY, SLOWER = 0.5, 1 / 4  # of groups: of all decay but one, and of the slower ones; powers of two, too
LAST_LAYERS = ("outlet.", "norm.")  # a group of their own: they decay, and are slower
NUM_GROUPS = 3  # with biases and the rest, where the model has such a layer
ADAMW_LR = 1e-3
ADAMW_BETAS, ADAMW_EPS, ADAMW_DECAY = (0.9, 0.999), 1e-8, 0.01  # torch's own, unless the scenario has others
FAR_ABOVE = 1e6


class Scenario(OfClaims, OfObserving, OfRanks, OfLargeNumbers, OfInterruptions, OfTheOptimizer, OfForwards, OfTheModel):
    """What every rank is told. The same object goes to the single-process reference."""

    name: str
    situation: str
    workload: str
    strategy: StrategyRef
    world_size: int = Field(ge=1)
    seed: int = 0
    backend: Literal["gloo", "nccl", "cpu:gloo,cuda:nccl"] = "gloo"
    device: Literal["cpu", "cuda"] = "cpu"
    driver: str | None = None
    fault: str | None = None
    timeout_s: float = 60.0

    @property
    def samples_per_step(self) -> int:
        """The size of the large batch, which the single process takes in one step."""
        return self.world_size * self.num_micro_batches * self.samples_per_micro_batch

    @property
    def keep_payloads(self) -> bool:
        """Whether the payloads of collectives are recorded, for checks to read."""
        return self.payloads or self.tagged

    def max_norm(self, step: int) -> float | None:
        """The norm to which ``step``'s gradients are clipped; None if they are not."""
        return self.clip_norm * FAR_ABOVE if self.clip_norm and step in self.loose_clip_in else self.clip_norm

    def has_one_more(self, rank: int) -> bool:
        """Return whether ``rank`` has a step that others have not, where inputs are uneven."""
        return self.uneven and rank % 2 == (0 if self.even_ranks_longer else 1)

    @property
    def norm_type(self) -> float:
        """The ``norm_type`` of clipping."""
        return math.inf if self.largest_norm else 2.0

    @property
    def lr(self) -> float:
        """The learning rate that the loop asks for."""
        return ADAMW_LR if self.optimizer == "adamw" else SGD_LR

    def asked_of(self, name: str) -> tuple[float, float]:
        """The learning rate and decay asked for parameter ``name``, by its group if there are groups (``grouping``)."""
        if not self.groups:
            return self.lr, self.weight_decay
        if name.endswith("bias"):
            return self.lr * SLOWER, 0.0
        return (self.lr * SLOWER, DECAY) if name.startswith(LAST_LAYERS) else (self.lr, DECAY)

    def save(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "scenario.json").write_text(self.model_dump_json(indent=2), encoding="utf-8")

    @classmethod
    def load(cls, folder: Path) -> Scenario:
        return read_model(cls, folder / "scenario.json")
