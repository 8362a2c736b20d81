"""Models how a step scales with ranks: rings, trees, nodes, efficiency, accumulation, exposed communication. Pure.

Each rank keeps its own batch as ranks are added (weak scaling), so a step would take the same time on any number of
ranks if communication were free. ``efficiency`` is that time divided by the step's time with communication.
``ASSUMPTIONS`` lists the assumptions, and is printed with every curve.

Special here: an all-reduce on N ranks is again a ``Link``, its alpha and beta computed from one hop's, so the same
timeline (``ddp_core.cost``) serves 2 ranks and 4,096. Formulas: ring, Patarasuk and Yuan 2009; double binary
trees, Sanders, Speck and Träff 2009; two levels, Thakur, Rabenseifner and Gropp 2005.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Literal

from ddp_core.cost import DEFAULT_CAP_BYTES, UNDISTURBED, Contention, Fill, Layer, Link, Timeline, timeline

Algorithm = Literal["ring", "tree", "hierarchical"]
ALGORITHMS: tuple[Algorithm, ...] = ("ring", "tree", "hierarchical")

ASSUMPTIONS = (
    "each rank keeps its own batch: compute does not change with the number of ranks (weak scaling)",
    "all ranks are equally fast and start together: no stragglers, no jitter, no input stalls",
    "links are full duplex and not shared with other traffic; an all-reduce costs alpha + beta n",
    "one stream of communication, beside backward only: none of it is hidden behind forward or the optimizer",
    "the time to add up what arrives is part of beta, and the optimizer's step is not counted unless given",
)


@dataclass(frozen=True)
class Network:
    """The hops of a cluster: ``near`` inside a node of ``ranks_per_node``, ``far`` between nodes.

    A ``Link`` here is one hop, per rank: ``alpha_s`` is the latency of a message to a neighbour, ``beta_s_per_byte``
    the inverse of the bandwidth of one rank in one direction. ``far.beta_s_per_byte`` is that of a rank's share of its
    node's network; a flat ring crosses between nodes on one such share only.
    """

    near: Link
    far: Link
    ranks_per_node: int = 8

    def __post_init__(self) -> None:
        if self.ranks_per_node < 1:
            raise ValueError(f"ranks_per_node must be at least 1, got {self.ranks_per_node}")

    def all_reduce(self, num_ranks: int, algorithm: Algorithm = "ring") -> Link:
        """Alpha and beta of a whole all-reduce on ``num_ranks``; both 0 for one rank.

        Raises ValueError if ``num_ranks`` is not positive, or, for ``hierarchical``, more than a node holds and no
        multiple of ``ranks_per_node``.
        """
        hop = self.near if num_ranks <= self.ranks_per_node else self.far
        if algorithm == "ring":
            return ring(hop, num_ranks)
        if algorithm == "tree":
            return tree(hop, num_ranks)
        return hierarchical(self.near, self.far, num_ranks, self.ranks_per_node)


def ring(hop: Link, num_ranks: int) -> Link:
    """A ring: 2(N-1) messages in sequence, each of 1/N of the tensor. Least volume, latency that grows with N."""
    rounds = 2 * (_positive(num_ranks) - 1)
    return Link(rounds * hop.alpha_s, rounds / num_ranks * hop.beta_s_per_byte)


def tree(hop: Link, num_ranks: int) -> Link:
    """Two binary trees at once, up and down, in pieces: 2 ceil(log2 N) latencies, and 2n bytes at full bandwidth."""
    if _positive(num_ranks) == 1:
        return Link(0.0, 0.0)
    return Link(2 * math.ceil(math.log2(num_ranks)) * hop.alpha_s, 2 * hop.beta_s_per_byte)


def hierarchical(near: Link, far: Link, num_ranks: int, ranks_per_node: int) -> Link:
    """Reduce-scatter in each node, all-reduce of each part between nodes, all-gather in each node.

    Of n bytes each rank sends only n / ``ranks_per_node`` between nodes, and that ring is over nodes, not ranks.

    Raises ValueError if ranks do not fill their nodes.
    """
    if _positive(num_ranks) <= ranks_per_node:
        return ring(near, num_ranks)
    if num_ranks % ranks_per_node:
        raise ValueError(
            f"{num_ranks} ranks do not fill nodes of {ranks_per_node}: give a multiple of {ranks_per_node}, "
            "or take the algorithm 'ring'"
        )
    inside, across = ring(near, ranks_per_node), ring(far, num_ranks // ranks_per_node)
    return Link(
        inside.alpha_s + across.alpha_s,
        inside.beta_s_per_byte + across.beta_s_per_byte / ranks_per_node,
    )


def _positive(num_ranks: int) -> int:
    if num_ranks < 1:
        raise ValueError(f"num_ranks must be at least 1, got {num_ranks}")
    return num_ranks


@dataclass(frozen=True)
class Job:
    """Every rank's work in a step: ``forward_s``, backward over ``layers`` (first layer first), ``optimizer_s``."""

    layers: tuple[Layer, ...]
    forward_s: float = 0.0
    optimizer_s: float = 0.0
    cap_bytes: float = DEFAULT_CAP_BYTES
    fill: Fill = "until_full"
    contention: Contention = UNDISTURBED

    @property
    def num_bytes(self) -> int:
        """Bytes of gradients."""
        return sum(layer.num_bytes for layer in self.layers)

    @property
    def backward_s(self) -> float:
        return sum(layer.backward_s for layer in self.layers)

    @property
    def compute_s(self) -> float:
        """Seconds of a step without communication."""
        return self.forward_s + self.backward_s + self.optimizer_s

    def timeline(self, link: Link) -> Timeline:
        return timeline(self.layers, self.cap_bytes, link, contention=self.contention, fill=self.fill)

    def step_s(self, link: Link) -> float:
        return self.forward_s + self.timeline(link).step_s + self.optimizer_s


@dataclass(frozen=True)
class ScalingPoint:
    """One number of ranks. ``efficiency`` is throughput / (N times that of one rank), between 0 and 1."""

    num_ranks: int
    step_s: float
    exposed_s: float
    communication_s: float
    efficiency: float

    @property
    def speedup(self) -> float:
        """Throughput relative to one rank: N times the efficiency."""
        return self.num_ranks * self.efficiency


def efficiency_of(speedup: float, num_ranks: int) -> float:
    """Scaling efficiency of a measured ``speedup`` over one rank: 4.6 on 8 ranks is 0.575."""
    return speedup / _positive(num_ranks)


def scale(job: Job, all_reduce: Callable[[int], Link], ranks: Iterable[int]) -> list[ScalingPoint]:
    """The scaling curve; ``all_reduce(num_ranks)`` gives the link, for example ``Network.all_reduce``."""
    points = []
    for num_ranks in ranks:
        found = job.timeline(all_reduce(num_ranks))
        step_s = job.forward_s + found.step_s + job.optimizer_s
        efficiency = min(job.compute_s / step_s, 1.0) if step_s else 1.0
        points.append(ScalingPoint(num_ranks, step_s, found.exposed_s, found.communication_s, efficiency))
    return points


def powers_of_two(largest: int) -> list[int]:
    """1, 2, 4, ... up to ``largest``, which comes last even if it is no power of two."""
    powers = [2**i for i in range(max(_positive(largest).bit_length(), 1)) if 2**i <= largest]
    return powers if powers[-1] == largest else [*powers, largest]


def stops_being_hidden(points: Sequence[ScalingPoint], floor: float = 0.9) -> ScalingPoint | None:
    """The first point with an efficiency below ``floor``; None if there is none."""
    return next((point for point in points if point.efficiency < floor), None)


@dataclass(frozen=True)
class Accumulation:
    """One optimizer step of ``num_micro_batches``, of which only the last synchronises."""

    num_micro_batches: int
    step_s: float
    calls: int
    exposed_s: float
    efficiency: float

    @property
    def micro_batch_s(self) -> float:
        """Time per micro-batch, which is comparable between different ``num_micro_batches``."""
        return self.step_s / self.num_micro_batches


def accumulate(job: Job, link: Link, num_micro_batches: int) -> Accumulation:
    """Forward and backward K times, communication once: calls and bytes per sample are divided by K.

    ``calls`` are those of one optimizer step. For the same samples, K micro-batches in one step make 1/K of the calls.

    Raises ValueError if ``num_micro_batches`` is not positive.
    """
    if num_micro_batches < 1:
        raise ValueError(f"num_micro_batches must be at least 1, got {num_micro_batches}")
    found = job.timeline(link)
    silent_s = (num_micro_batches - 1) * (job.forward_s + job.backward_s)
    step_s = silent_s + job.forward_s + found.step_s + job.optimizer_s
    efficiency = (silent_s + job.compute_s) / step_s if step_s else 1.0
    return Accumulation(num_micro_batches, step_s, len(found.transfers), found.exposed_s, efficiency)


def effective_batch(num_ranks: int, micro_batch_size: int, num_micro_batches: int) -> int:
    """Samples in one optimizer step over all ranks: the product of the arguments."""
    return num_ranks * micro_batch_size * num_micro_batches


@dataclass(frozen=True)
class Crossing:
    """Communication and backward on ``num_ranks``, each in seconds as if it ran alone."""

    num_ranks: int
    communication_s: float
    backward_s: float

    @property
    def communication_bound(self) -> bool:
        return self.communication_s > self.backward_s


def crossings(
    backward_s: float, communication_s: float, measured_on: int, ranks: Iterable[int], hop_alpha_s: float = 0.0
) -> list[Crossing]:
    """How a measured ``communication_s`` on ``measured_on`` ranks grows in a ring, while ``backward_s`` stays constant.

    Volume per rank is 2(N-1)/N of the tensor: from 2 ranks to very many it doubles and no more. Only latency grows
    without bound: 2(N-1) times ``hop_alpha_s``, which is subtracted from the measurement first.

    Raises ValueError if ``measured_on`` is less than 2 or the latency alone is more than was measured.
    """
    if measured_on < 2:
        raise ValueError(f"one rank has nobody to talk to: measured_on must be at least 2, got {measured_on}")
    volume_s = communication_s - 2 * (measured_on - 1) * hop_alpha_s
    if volume_s < 0:
        raise ValueError(
            f"{2 * (measured_on - 1)} latencies of {hop_alpha_s} s are more than the {communication_s} s measured"
        )
    share = (measured_on - 1) / measured_on
    return [Crossing(n, volume_s * ((n - 1) / n) / share + 2 * (n - 1) * hop_alpha_s, backward_s) for n in ranks]
