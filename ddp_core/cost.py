"""Models the cost of a step: messages, a ring's volume, buckets that overlap backward, and the best bucket size. Pure.

Nothing here needs torch, a process group or a machine: seconds and bytes go in, seconds and bytes come out. Sources:
the alpha-beta cost of a message is Hockney's (Parallel Computing 20, 1994); a ring all-reduce sends 2(N-1)/N of the
tensor from each rank, which is the least possible (Patarasuk and Yuan, J. Parallel Distrib. Comput. 69, 2009); buckets
that leave while backward runs are those of Li et al., "PyTorch Distributed", VLDB 2020.

Special here: one timeline serves a GPU and a CPU. Where the network has engines of its own, communication and backward
run side by side at full speed. On shared cores each slows the other down, and ``Contention`` says by how much. The
number of ranks, nodes and micro-batches is modelled in ``ddp_core.scaling``, memory in ``ddp_core.memory_wall``.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal, Protocol

from ddp_core.buckets import MB, Gradient, plan_buckets

DEFAULT_CAP_BYTES = 25 * MB  # the default of torch's DDP and of ``bucketed``
Fill = Literal["until_full", "up_to_cap"]


class Cost(Protocol):
    """The cost of a network as a timeline needs it: the seconds that one collective of n bytes takes."""

    def seconds(self, num_bytes: float) -> float: ...


@dataclass(frozen=True)
class Link:
    """The cost of one collective of n bytes: ``alpha_s + beta_s_per_byte * n`` seconds (Hockney's T(n)).

    Raises ValueError if either is negative or not finite.
    """

    alpha_s: float
    beta_s_per_byte: float

    def __post_init__(self) -> None:
        for name, value in (("alpha_s", self.alpha_s), ("beta_s_per_byte", self.beta_s_per_byte)):
            if not (value >= 0 and math.isfinite(value)):
                raise ValueError(f"{name} must be a finite number of at least 0, got {value!r}")

    def seconds(self, num_bytes: float) -> float:
        return self.alpha_s + self.beta_s_per_byte * num_bytes


@dataclass(frozen=True)
class Layer:
    """Gradients that become final together: ``backward_s`` seconds of backward yield ``num_bytes`` of them."""

    num_bytes: int
    backward_s: float
    name: str = ""


@dataclass(frozen=True)
class Contention:
    """How many times longer each takes while the other runs. 1 and 1: each has an engine of its own, as on a GPU.

    Raises ValueError if a factor is less than 1: neither can run faster beside the other.
    """

    backward: float = 1.0
    communication: float = 1.0

    def __post_init__(self) -> None:
        if min(self.backward, self.communication) < 1.0:
            raise ValueError(f"factors of contention must be at least 1, got {self.backward} and {self.communication}")


UNDISTURBED = Contention()


@dataclass(frozen=True)
class Transfer:
    """One bucket's transfer, in seconds from the start of backward: last gradient ready, transfer starts, ends."""

    num_bytes: int
    num_gradients: int
    ready_s: float
    start_s: float
    end_s: float


@dataclass(frozen=True)
class Timeline:
    """One backward with its communication; all times are seconds from the start of backward.

    ``backward_alone_s`` is backward without any communication, ``backward_end_s`` its end beside communication, and
    ``communication_s`` the time in which a transfer runs.
    """

    transfers: tuple[Transfer, ...]
    backward_alone_s: float
    backward_end_s: float

    @property
    def step_s(self) -> float:
        """The time at which backward and the last transfer are both over, so gradients are synchronised."""
        return max([self.backward_end_s, *(t.end_s for t in self.transfers)])

    @property
    def communication_s(self) -> float:
        return sum(t.end_s - t.start_s for t in self.transfers)

    @property
    def exposed_s(self) -> float:
        """The time that communication adds: the step minus the step without communication."""
        return max(self.step_s - self.backward_alone_s, 0.0)

    @property
    def overlapped_s(self) -> float:
        """Communication while backward runs."""
        return sum(max(min(t.end_s, self.backward_end_s) - t.start_s, 0.0) for t in self.transfers)

    @property
    def efficiency(self) -> float:
        """Throughput of a rank relative to one that never communicates: ``backward_alone_s / step_s``."""
        return self.backward_alone_s / self.step_s if self.step_s else 1.0


def ring_bytes(num_bytes: float, num_ranks: int) -> float:
    """Bytes that each rank sends (and receives) in a ring all-reduce of ``num_bytes``: 2(N-1)/N of them.

    Reduce-scatter and all-gather send half of it each. 7e9 parameters in bfloat16 (14 GB) on many ranks: 28 GB.

    Raises ValueError if ``num_ranks`` is not positive.
    """
    if num_ranks < 1:
        raise ValueError(f"num_ranks must be at least 1, got {num_ranks}")
    return 2 * (num_ranks - 1) / num_ranks * num_bytes


def fill_buckets(layers: Sequence[Layer], cap_bytes: float, fill: Fill = "until_full") -> list[list[int]]:
    """Indices of ``layers`` by bucket, from the last layer (whose gradient is first) to the first.

    ``until_full``: a bucket closes when it holds ``cap_bytes`` or more, as torch's DDP and the published simulator do.
    ``up_to_cap``: a bucket never exceeds ``cap_bytes``, except where it was nearly empty before a larger layer, as in
    ``bucketed`` (ddp_core.buckets).

    Raises ValueError if ``cap_bytes`` is not positive.
    """
    if not cap_bytes > 0:
        raise ValueError(f"cap_bytes must be greater than 0, got {cap_bytes!r}: a bucket has to hold something")
    if fill == "up_to_cap":
        gradients = [Gradient(str(i), layer.num_bytes, layer.num_bytes, "") for i, layer in enumerate(layers)]
        whole = max(int(min(cap_bytes, 2**62)), 1)
        plans = plan_buckets(gradients, cap_bytes=whole, first_cap_bytes=whole)
        return [[slot.index for slot in plan.slots] for plan in plans]
    buckets: list[list[int]] = [[]]
    for index in reversed(range(len(layers))):
        buckets[-1].append(index)
        if sum(layers[i].num_bytes for i in buckets[-1]) >= cap_bytes:
            buckets.append([])
    return [bucket for bucket in buckets if bucket]


def timeline(
    layers: Sequence[Layer],
    cap_bytes: float,
    link: Cost,
    *,
    contention: Contention = UNDISTURBED,
    fill: Fill = "until_full",
) -> Timeline:
    """Run backward over ``layers`` (first layer first; backward takes them last to first) with overlapped buckets.

    There is one stream of communication. A bucket starts when its last gradient is ready and the bucket before it has
    ended. While both run, backward and communication are slower by the factors of ``contention``.
    """
    buckets = fill_buckets(layers, cap_bytes, fill)
    sizes = [sum(layers[i].num_bytes for i in bucket) for bucket in buckets]
    ready, total = [], 0.0  # seconds of backward's own work that have to be done first
    for bucket in buckets:
        total += sum(layers[i].backward_s for i in bucket)
        ready.append(total)
    work = [link.seconds(size) for size in sizes]
    spans, backward_end_s = _run(ready, work, total, contention)
    transfers = (Transfer(size, len(bucket), *span) for size, bucket, span in zip(sizes, buckets, spans, strict=True))
    return Timeline(tuple(transfers), total, backward_end_s)


def _run(
    ready: Sequence[float], work: Sequence[float], backward_s: float, contention: Contention
) -> tuple[list[tuple[float, float, float]], float]:
    """(ready, start, end) of each transfer and the end of backward, in seconds by the clock.

    ``ready`` and ``work`` are in seconds of work without contention. The simulation goes from event to event: between
    two events both sides run at a constant pace.
    """
    now = done = left = backward_end = 0.0  # the clock, backward's finished work, the current transfer's remaining work
    ready_at: list[float] = []
    starts: list[float] = []
    ends: list[float] = []
    while done < backward_s or len(ends) < len(work):
        while len(ready_at) < len(ready) and ready[len(ready_at)] <= done:
            ready_at.append(now)
        if len(starts) == len(ends) < len(ready_at):
            left = work[len(starts)]
            starts.append(now)
        sending, computing = len(starts) > len(ends), done < backward_s
        goal = ready[len(ready_at)] if len(ready_at) < len(ready) else backward_s
        pace = contention.backward if sending else 1.0
        until_goal = (goal - done) * pace if computing else math.inf
        until_sent = left * (contention.communication if computing else 1.0) if sending else math.inf
        if until_sent <= until_goal:
            done += until_sent / pace if computing else 0.0
            now += until_sent
            ends.append(now)
        else:
            left -= until_goal / contention.communication if sending else 0.0
            now += until_goal
            done = goal
        if computing and done >= backward_s:
            backward_end = now
    return list(zip(ready_at, starts, ends, strict=True)), backward_end


def no_overlap_s(layers: Iterable[Layer], link: Cost) -> float:
    """Seconds of a whole backward and then one all-reduce per layer: the baseline for buckets."""
    return sum(layer.backward_s + link.seconds(layer.num_bytes) for layer in layers)


@dataclass(frozen=True)
class SweepPoint:
    cap_bytes: float
    timeline: Timeline


@dataclass(frozen=True)
class Sweep:
    """Step time against bucket size. ``default`` is torch's DDP's bucket size, 25 MB."""

    points: tuple[SweepPoint, ...]
    default: SweepPoint

    @property
    def best(self) -> SweepPoint:
        """The shortest step; among equals (to a part in a billion) the largest bucket, which makes the fewest calls."""
        shortest = min(point.timeline.step_s for point in self.points)
        equals = [point for point in self.points if point.timeline.step_s <= shortest * (1 + 1e-9)]
        return max(equals, key=lambda point: point.cap_bytes)

    @property
    def gain(self) -> float:
        """The share of the default's step time that the best saves, up to 1; negative if all sizes tried are slower."""
        default = self.default.timeline.step_s
        return 1 - self.best.timeline.step_s / default if default else 0.0


def sweep(
    layers: Sequence[Layer],
    link: Cost,
    caps_bytes: Iterable[float],
    *,
    contention: Contention = UNDISTURBED,
    fill: Fill = "until_full",
) -> Sweep:
    """The timelines of all given bucket sizes, and of the default. Raises ValueError if no size is given."""

    def point(cap: float) -> SweepPoint:
        return SweepPoint(cap, timeline(layers, cap, link, contention=contention, fill=fill))

    points = tuple(point(cap) for cap in caps_bytes)
    if not points:
        raise ValueError("there is no bucket size to try: give at least one")
    return Sweep(points, point(DEFAULT_CAP_BYTES))


def sizes_between(low_bytes: float, high_bytes: float, num: int) -> list[float]:
    """``num`` sizes from ``low_bytes`` to ``high_bytes``, with a constant ratio between neighbours."""
    if not 0 < low_bytes <= high_bytes or num < 2:
        raise ValueError(f"cannot place {num} sizes between {low_bytes} and {high_bytes} bytes: low > 0, at least 2")
    return [low_bytes * (high_bytes / low_bytes) ** (i / (num - 1)) for i in range(num)]
