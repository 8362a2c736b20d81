"""A recording: what one scenario's ranks did, as plain data on disk, and how to read it back.

A rank writes two files: ``journal.jsonl``, one event a line, each line written *before* the thing it tells of
is tried, so that a rank that dies leaves everything up to its last act; and ``blobs.bin``, the bytes of tensors,
which journal lines point into. Reading needs numpy and no torch: a recording made on eight GPUs is judged on a
laptop.

    scenario.json
    launch.json                      how each process ended, with the stacks of those that hung
    subject/rank0/journal.jsonl      ... one folder per rank
    reference/rank0/journal.jsonl    the single process on the large batch
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from verifier import sharding
from verifier.scenario import Scenario

REDUCTIONS = frozenset({"allreduce_", "reduce_", "reduce_scatter_", "_reduce_scatter_base_", "allreduce_coalesced_"})


@dataclass(frozen=True)
class Tensor:
    """What was written down of one tensor: always its digest (xxh3_128 of its bytes), its contents if kept."""

    what: str  # weight, gradient, local_gradient, buffer
    step: int  # -1: before the first step
    name: str
    dtype: str
    shape: tuple[int, ...]
    digest: str
    values: np.ndarray | None  # numbers as float64-compatible numpy, shape as above; None: not kept
    shard: dict[str, list[int]] | None = None  # a part of a sharded tensor: the whole's shape, this part's offset


@dataclass(frozen=True)
class Collective:
    """One collective as a rank issued it. Times are seconds of one clock shared by the ranks of a host."""

    seq: int  # the rank's own count, from 0
    op: str
    group: str
    phase: str  # wrap, forward, backward, before_step, step, after
    step: int  # -1: during wrap
    dtype: str
    numel: int
    num_bytes: int
    reduce_op: str | None
    root: int | None
    issued: float
    landed: float | None
    written_in_flight: bool  # the tensor was written to between issue and wait
    payload: np.ndarray | None

    @property
    def signature(self) -> tuple[str, str, int, str | None, int | None]:
        """What must be equal on all ranks of a group."""
        return (self.op, self.dtype, self.numel, self.reduce_op, self.root)

    def describe(self) -> str:
        reduce_op = f" {self.reduce_op}" if self.reduce_op else ""
        return f"{self.op.strip('_')}{reduce_op} of {self.numel} {self.dtype}"


@dataclass
class RankRecording:
    """Everything one rank wrote."""

    rank: int
    tensors: dict[tuple[str, int, str], Tensor] = field(default_factory=dict)
    collectives: list[Collective] = field(default_factory=list)
    notes: dict[str, Any] = field(default_factory=dict)
    losses: dict[int, float] = field(default_factory=dict)
    outcome: dict[str, Any] | None = None  # None: the rank never came to its end

    @property
    def completed(self) -> bool:
        return self.outcome is not None and self.outcome["status"] == "completed"

    def tensor(self, what: str, step: int, name: str) -> Tensor | None:
        return self.tensors.get((what, step, name))

    def named(self, what: str, step: int) -> dict[str, Tensor]:
        return {name: t for (w, s, name), t in self.tensors.items() if w == what and s == step}


@dataclass
class Recording:
    """One scenario, whole: the ranks' recordings, the reference's, and how the processes ended."""

    scenario: Scenario
    ranks: list[RankRecording]
    reference: RankRecording | None
    launch: dict[str, Any]

    @classmethod
    def load(cls, folder: Path) -> Recording:
        """Read a scenario's folder. What a rank did not write is simply absent.

        Raises FileNotFoundError if ``folder`` holds no scenario.
        """
        scenario = Scenario.load(folder)
        ranks = [_read_rank(folder / "subject" / f"rank{r}", r) for r in range(scenario.world_size)]
        sharding.assemble(ranks)
        reference_folder = folder / "reference" / "rank0"
        reference = _read_rank(reference_folder, 0) if reference_folder.exists() else None
        launch_file = folder / "launch.json"
        launch = json.loads(launch_file.read_text(encoding="utf-8")) if launch_file.exists() else {}
        return cls(scenario, ranks, reference, launch)

    @property
    def complete(self) -> bool:
        return all(rank.completed for rank in self.ranks)

    @cached_property
    def refused(self) -> str | None:
        """What the strategy said when it refused this scenario, as it may: every rank raised, and the contract does not
        claim what the scenario needs. None: it did not refuse.
        """
        contract = self.ranks[0].notes.get("contract")  # absent: it was not even imported
        unclaimed = [need for need in self.scenario.needs if contract and not claims(contract, need)]
        outcomes = [rank.outcome or {} for rank in self.ranks]
        if not unclaimed or not all(outcome.get("status") == "raised" for outcome in outcomes):
            return None
        return str(outcomes[0]["detail"]).splitlines()[-1]

    @cached_property
    def parameter_names(self) -> list[str]:
        """Trainable parameters in the bare model's registration order."""
        for rank in [*([self.reference] if self.reference else []), *self.ranks]:
            if "parameters" in rank.notes:
                return [entry["name"] for entry in rank.notes["parameters"]]
        return []

    def steps(self) -> Iterator[int]:
        yield from range(self.scenario.num_steps)


def claims(contract: dict[str, Any], need: str) -> bool:
    """Does ``contract`` (as recorded) claim ``need``: a field of its own, or one of ``supports``?"""
    return bool(contract.get(need, need in contract.get("supports", ())))


def _read_rank(folder: Path, rank: int) -> RankRecording:
    found = RankRecording(rank)
    journal, blobs = folder / "journal.jsonl", folder / "blobs.bin"
    if not journal.exists():
        return found
    store = np.fromfile(blobs, dtype=np.uint8) if blobs.exists() else np.empty(0, np.uint8)
    landed: dict[int, dict[str, Any]] = {}
    issued: list[dict[str, Any]] = []
    for line in journal.read_text(encoding="utf-8").splitlines():
        try:
            event = json.loads(line)
        except json.JSONDecodeError:  # the last line of a rank that was killed while writing it
            break
        kind = event.pop("kind")
        if kind == "tensor":
            entry = Tensor(values=_values(store, event.pop("blob"), event["dtype"], event["shape"]), **event)
            found.tensors[entry.what, entry.step, entry.name] = entry
        elif kind == "collective":
            issued.append(event)
        elif kind == "landed":
            landed[event["seq"]] = event
        elif kind == "loss":
            found.losses[event["step"]] = event["value"]
        elif kind == "outcome":
            found.outcome = event
        else:
            found.notes[event["name"]] = event["value"]
    for event in issued:
        payload = _values(store, event.pop("blob"), event["dtype"], [event["numel"]])
        end = landed.get(event["seq"], {})
        times = {"landed": end.get("at"), "written_in_flight": end.get("written", False)}
        found.collectives.append(Collective(payload=payload, **times, **event))
    return found


def _values(store: np.ndarray, blob: list[int] | None, dtype: str, shape: list[int]) -> np.ndarray | None:
    """The numbers behind a journal line: ``blob`` is [offset, size in bytes]; None if it is not all there."""
    if blob is None or blob[0] + blob[1] > store.size:
        return None
    raw = store[blob[0] : blob[0] + blob[1]]
    if dtype == "bfloat16":  # numpy has none: its bits are the upper half of a float32
        return (raw.view(np.uint16).astype(np.uint32) << 16).view(np.float32).reshape(shape)
    return raw.view(np.dtype(dtype)).reshape(shape)
