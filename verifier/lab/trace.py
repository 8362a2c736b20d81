"""Shares of a step from torch.profiler's trace: time that computes, communicates, or does neither. Pure.

The definitions, which make figures comparable with the published table (docs/performance-lab.md):

- *compute*: on the CPU, an ATen operator runs (those of autograd and the optimizer included); on CUDA, a kernel that is
  not NCCL's runs.
- *communication*: gloo's threads work on a collective (waiting for peers included); on CUDA, an NCCL kernel runs.
- *memory*: on CUDA, a copy or a fill. On the CPU copies are ATen operators, and count as compute.
- *compute %*: the part of the step in which something computes. *Non-compute %*: communication or memory traffic, and
  no compute beside it. *Idle %*: none of the three. They add up to 100.
- *overlap %*: the part of communication during which something computes.
- *communication overhead %*: communication, hidden or not, as part of the time that is not idle. (With this reading the
  published rows agree with one another.)

Special here: overlapping intervals of one kind count once, so no share exceeds the step, however many threads or
streams there are.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

Interval = tuple[float, float]
Kind = Literal["compute", "communication", "memory"]
STEP = "lockstep_step"  # the annotation around each step


@dataclass(frozen=True)
class Shares:
    """One step as one rank saw it, in seconds; the properties are the published columns, in percent."""

    step_s: float
    compute_s: float
    communication_s: float
    overlap_s: float
    busy_s: float

    @property
    def compute_percent(self) -> float:
        return 100 * self.compute_s / self.step_s

    @property
    def non_compute_percent(self) -> float:
        return 100 * (self.busy_s - self.compute_s) / self.step_s

    @property
    def idle_percent(self) -> float:
        return 100 * (self.step_s - self.busy_s) / self.step_s

    @property
    def overlap_percent(self) -> float:
        return 100 * self.overlap_s / self.communication_s if self.communication_s else 0.0

    @property
    def overhead_percent(self) -> float:
        return 100 * self.communication_s / self.busy_s if self.busy_s else 0.0


def kind_of(event: dict[str, Any]) -> Kind | None:
    """The kind of an event of a Chrome trace; None for events that run nowhere or contain others."""
    name, category = str(event.get("name", "")), event.get("cat")
    if category == "kernel":
        return "communication" if "nccl" in name.lower() else "compute"
    if category in ("gpu_memcpy", "gpu_memset"):
        return "memory"
    if name.startswith("gloo:"):
        return "communication"
    return "compute" if category == "cpu_op" and name.startswith("aten::") else None


def read(events: Iterable[dict[str, Any]], device: str = "cpu") -> list[dict[Kind, list[Interval]]]:
    """Merged intervals by kind, for each annotated step, in seconds from its start.

    On CUDA, events on the host are left out, because the device's kernels show the work.
    """
    complete = [event for event in events if event.get("ph") == "X"]
    windows = sorted((e["ts"], e["ts"] + e["dur"]) for e in complete if e.get("name") == STEP and _on_host(e))
    found: dict[Kind, list[Interval]] = {"compute": [], "communication": [], "memory": []}
    for event in complete:
        kind = kind_of(event)
        if kind is not None and (device == "cpu" or not _on_host(event)):
            found[kind].append((event["ts"], event["ts"] + event["dur"]))
    return [{kind: _within(merged(found[kind]), window) for kind in found} for window in windows]


def windows(events: Iterable[dict[str, Any]]) -> list[float]:
    """The lengths in seconds of the annotated steps, in order."""
    found = [(e["ts"], e["dur"]) for e in events if e.get("ph") == "X" and e.get("name") == STEP and _on_host(e)]
    return [duration / 1e6 for _, duration in sorted(found)]


def _on_host(event: dict[str, Any]) -> bool:
    return event.get("cat") in ("cpu_op", "user_annotation")


def _within(intervals: Sequence[Interval], window: Interval) -> list[Interval]:
    low, high = window
    cut = [(max(a, low), min(b, high)) for a, b in intervals if b > low and a < high]
    return [((a - low) / 1e6, (b - low) / 1e6) for a, b in cut]


def merged(intervals: Iterable[Interval]) -> list[Interval]:
    """The union of ``intervals``, as disjoint intervals in order."""
    union: list[Interval] = []
    for a, b in sorted(intervals):
        if union and a <= union[-1][1]:
            union[-1] = (union[-1][0], max(union[-1][1], b))
        else:
            union.append((a, b))
    return union


def length(intervals: Iterable[Interval]) -> float:
    return sum(b - a for a, b in intervals)


def common(one: Sequence[Interval], other: Sequence[Interval]) -> list[Interval]:
    """The intersection of two unions, each given as disjoint intervals in order."""
    both, i, j = [], 0, 0
    while i < len(one) and j < len(other):
        low, high = max(one[i][0], other[j][0]), min(one[i][1], other[j][1])
        if low < high:
            both.append((low, high))
        if one[i][1] < other[j][1]:
            i += 1
        else:
            j += 1
    return both


def shares(kinds: dict[Kind, list[Interval]], step_s: float) -> Shares:
    """The shares of a step of ``step_s`` seconds, from ``kinds`` as ``read`` returns them."""
    compute, communication = kinds["compute"], kinds["communication"]
    busy = merged([*compute, *communication, *kinds["memory"]])
    return Shares(step_s, length(compute), length(communication), length(common(compute, communication)), length(busy))
