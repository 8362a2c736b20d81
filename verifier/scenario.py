"""One experiment, fully described: what is trained, on how many ranks, with which strategy, under which conditions.

Special here: a scenario is plain frozen data with no torch in it. It is written beside its recording, so a
recording can be judged next year without knowing how it was asked for.
"""

from __future__ import annotations

from pathlib import Path
from typing import Literal

from pydantic import BaseModel, ConfigDict, Field

from verifier.request import StrategyRef


class Scenario(BaseModel):
    """What every rank is told. The same object goes to the single-process reference."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    name: str
    situation: str
    workload: str
    strategy: StrategyRef
    world_size: int = Field(ge=1)
    num_steps: int = Field(1, ge=1, description="optimizer steps")
    num_micro_batches: int = Field(1, ge=1, description="backwards per step and rank; all but the last in no_sync()")
    samples_per_micro_batch: int = Field(1, ge=1, description="per rank")
    optimizer: Literal["sgd", "adamw"] = "sgd"
    seed: int = 0
    same_start: bool = Field(True, description="replicas are built equal; false: each rank draws its own weights")
    tagged: bool = Field(False, description="gradients are replaced by codes that name their parameter and element")
    poison: bool = Field(True, description="a tensor in flight holds NaN until the strategy waits for it")
    keep_steps: int = Field(8, ge=0, description="contents are kept of the first steps, digests of all")
    small_buckets: bool = Field(False, description="built-in strategies get a small bucket cap: several buckets")
    evaluate: bool = Field(False, description="the workload's own evaluation runs after the last step")
    needs: tuple[str, ...] = Field(
        (), description="claims without which a strategy may refuse this, raising on every rank"
    )
    judged_by: tuple[str, ...] | None = Field(None, description="only these check codes read this; None: all")
    backend: Literal["gloo", "nccl"] = "gloo"
    device: Literal["cpu", "cuda"] = "cpu"
    driver: str | None = None
    fault: str | None = None
    timeout_s: float = 60.0

    @property
    def samples_per_step(self) -> int:
        """The large batch: what the single process takes in one step."""
        return self.world_size * self.num_micro_batches * self.samples_per_micro_batch

    def save(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "scenario.json").write_text(self.model_dump_json(indent=2), encoding="utf-8")

    @classmethod
    def load(cls, folder: Path) -> Scenario:
        return cls.model_validate_json((folder / "scenario.json").read_text(encoding="utf-8"))
