"""Steps under torch.profiler, calls under the observer, memory by kind: one rank's results of a comparison.

Special here: plain and profiled steps of all strategies alternate in the same rounds, so the cost of profiling is
known, and step times are those of plain steps. The observer comes last: once under torch's operators it stays.
"""

from __future__ import annotations

import dataclasses
import json
import random
import tempfile
import time
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch.profiler import ProfilerActivity, profile, record_function

from ddp_core.memory import memory_report
from verifier.journal import Journal
from verifier.lab import trace
from verifier.lab.replica import Replica
from verifier.observe.kernels import install
from verifier.observe.observer import Observer
from verifier.request import StrategyRef

MOST_SPANS = 400  # in a timeline


@dataclasses.dataclass(frozen=True)
class Entrant:
    """One row of a comparison. If ``strategy`` is None, it is the bare model."""

    label: str
    strategy: StrategyRef | None
    num_micro_batches: int = 1


def compare(name: str, entrants: list[Entrant], num_rounds: int, device: str) -> dict[str, dict[str, Any]]:
    """Measure, by label: seconds of plain and profiled steps, shares of each profiled step, calls, bytes, memory."""
    replicas = {
        e.label: Replica(name, e.strategy, device=device, num_micro_batches=e.num_micro_batches) for e in entrants
    }
    found: dict[str, dict[str, Any]] = {label: {"plain_s": [], "profiled_s": [], "shares": []} for label in replicas}
    order = random.Random(0)
    with tempfile.TemporaryDirectory() as folder:
        for number in range(num_rounds + 2):
            for label in order.sample(list(replicas), len(replicas)):
                row, replica, path = found[label], replicas[label], Path(folder, "trace.json")
                plain_first = (
                    order.random() < 0.5
                )  # the one that goes first finds the caches as another strategy left them
                if plain_first:
                    plain_s = replica.seconds_a_step(replica.work.steps_per_round)
                profiled_s, kinds, lengths = _profiled(replica, path, device)
                if not plain_first:
                    plain_s = replica.seconds_a_step(replica.work.steps_per_round)
                if number > 1:
                    row["plain_s"].append(plain_s)
                    row["profiled_s"].append(profiled_s)
                    row["shares"] += [trace.shares(k, s) for k, s in zip(kinds, lengths, strict=True)]
                    row["spans"] = {kind: spans[:MOST_SPANS] for kind, spans in kinds[-1].items()}
        for label, replica in replicas.items():
            found[label] |= _memory(replica)
        for label, counted in _counted(replicas, Path(folder)).items():
            found[label] |= counted
    return found


def _profiled(
    replica: Replica, path: Path, device: str
) -> tuple[float, list[dict[trace.Kind, list[trace.Interval]]], list[float]]:
    activities = [ProfilerActivity.CPU, *([ProfilerActivity.CUDA] if device == "cuda" else [])]
    with profile(activities=activities) as profiler:
        dist.barrier()
        begun = time.perf_counter()
        for _ in range(replica.work.steps_per_round):
            with record_function(trace.STEP):
                replica.step()
                replica.settle()
        seconds = (time.perf_counter() - begun) / replica.work.steps_per_round
    profiler.export_chrome_trace(str(path))
    events = json.loads(path.read_text())["traceEvents"]
    return seconds, trace.read(events, device), trace.windows(events)


def _memory(replica: Replica) -> dict[str, Any]:
    report = memory_report(replica.model, replica.optimizer, replica.forward)
    peak = torch.cuda.max_memory_allocated(replica.device) if replica.device.type == "cuda" else None
    return {"memory": {**dataclasses.asdict(report), "total": report.total, "peak_on_device": peak}}


def _counted(replicas: dict[str, Replica], folder: Path) -> dict[str, dict[str, Any]]:
    """Calls and bytes of one step of each replica, as the observer sees them."""
    journal = Journal(folder)
    observer = Observer(journal, folder / "board", poison=False, keep_payloads=False)
    install(observer)
    observer.phase = "train"
    for number, replica in enumerate(replicas.values()):
        dist.barrier()
        observer.step = number
        replica.step()
        observer.step = -1
    lines = [json.loads(line) for line in (folder / "journal.jsonl").read_text().splitlines()]
    collectives = [line for line in lines if line["kind"] == "collective" and line["op"] != "barrier"]
    found = {}
    for number, label in enumerate(replicas):
        reductions = [c for c in collectives if c["step"] == number and "reduce" in c["op"]]
        found[label] = {
            "calls": len(reductions),
            "num_bytes": sum(c["num_bytes"] for c in reductions),
            "other_calls": sum(c["step"] == number for c in collectives) - len(reductions),
        }
    return found
