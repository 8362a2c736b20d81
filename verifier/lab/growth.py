"""The cost model's answers about growth: scaling to thousands of ranks, accumulation, nodes, limits of overlap. Pure.

Special here: every curve carries its assumptions as notes.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence

from ddp_core import scaling
from ddp_core.cost import Link, ring_bytes
from ddp_core.scaling import ASSUMPTIONS, Algorithm, Job, Network
from verifier.lab.finding import Chart, Finding, Series
from verifier.lab.quantities import told

FLOORS = (0.95, 0.9, 0.8, 0.7)


def scaling_curve(
    job: Job, network: Network, largest: int, algorithms: Sequence[Algorithm], num_micro_batches: int = 1
) -> Finding:
    """Efficiency against the number of ranks, a curve for each algorithm."""
    ranks = scaling.powers_of_two(largest)
    curves = {}
    for algorithm in algorithms:
        usable = [n for n in ranks if algorithm != "hierarchical" or _fills(n, network)]
        all_reduce = functools.partial(network.all_reduce, algorithm=algorithm)
        curves[algorithm] = scaling.scale(accumulated(job, num_micro_batches), all_reduce, usable)
    by_ranks = {a: {p.num_ranks: p for p in points} for a, points in curves.items()}
    columns = ("ranks", *(f"{a}: {what}" for a in algorithms for what in ("step, ms", "exposed, ms", "efficiency")))
    rows = []
    for n in ranks:
        cells: list[str] = []
        for algorithm in algorithms:
            p = by_ranks[algorithm].get(n)
            cells += ["", "", ""] if p is None else [
                f"{p.step_s * 1e3:.1f}", f"{p.exposed_s * 1e3:.1f}", f"{p.efficiency:.1%}"]  # fmt: skip
        rows.append((n, *cells))
    notes = [f"{a}: {_hiding_ends(points)}" for a, points in curves.items()]
    notes += [
        f"each rank has {told(job.num_bytes)} of gradients, of which a ring sends "
        f"{told(ring_bytes(job.num_bytes, largest))} on {largest:,} ranks",
        f"compute takes {accumulated(job, num_micro_batches).compute_s * 1e3:.1f} ms a step",
        *(f"assumed: {text}" for text in (*ASSUMPTIONS, _hops(network))),
    ]
    series = tuple(
        Series(a, tuple(p.num_ranks for p in points), tuple(p.efficiency * 100 for p in points))
        for a, points in curves.items()
    )
    chart = Chart("lines", "ranks", "scaling efficiency, %", series, log_x=True)
    facts = {str(a): {p.num_ranks: p.efficiency for p in points} for a, points in curves.items()}
    return Finding(f"Scaling to {largest:,} ranks", columns, tuple(rows), tuple(notes), chart, facts)


def accumulated(job: Job, num_micro_batches: int) -> Job:
    """``job`` with all micro-batches but the last counted as part of forward."""
    silent_s = (num_micro_batches - 1) * (job.forward_s + job.backward_s)
    return Job(job.layers, job.forward_s + silent_s, job.optimizer_s, job.cap_bytes, job.fill, job.contention)


def _fills(num_ranks: int, network: Network) -> bool:
    return num_ranks <= network.ranks_per_node or num_ranks % network.ranks_per_node == 0


def _hops(network: Network) -> str:
    near, far = (f"{link.alpha_s * 1e6:g} us and {1 / link.beta_s_per_byte / 1e9:.3g} GB/s" if link.beta_s_per_byte
                 else f"{link.alpha_s * 1e6:g} us" for link in (network.near, network.far))  # fmt: skip
    return f"{network.ranks_per_node} ranks a node; a hop takes {near} inside, {far} per rank between nodes"


def _hiding_ends(points: Sequence[scaling.ScalingPoint]) -> str:
    words = []
    for floor in FLOORS:
        first = scaling.stops_being_hidden(points, floor)
        words.append(f"under {floor:.0%} " + ("never" if first is None else f"from {first.num_ranks:,} ranks"))
    return "efficiency is " + ", ".join(words)


def accumulation(job: Job, link: Link, most: int, samples: int) -> Finding:
    """One optimizer step of 1, 2, 4, ... micro-batches: calls for the same samples, time per micro-batch."""
    points = [scaling.accumulate(job, link, k) for k in scaling.powers_of_two(most)]
    first = points[0]
    rows = tuple(
        (
            p.num_micro_batches,
            f"{p.calls * samples / p.num_micro_batches:g}",
            f"{p.step_s * 1e3:.1f}",
            f"{p.micro_batch_s * 1e3:.1f}",
            f"{p.efficiency:.1%}",
        )
        for p in points
    )
    notes = (
        f"calls are those of {samples} micro-batches: K in one step make 1/K of them",
        f"per micro-batch {first.micro_batch_s * 1e3:.1f} ms without, {points[-1].micro_batch_s * 1e3:.1f} ms with "
        f"{points[-1].num_micro_batches}; the batch of one step grows by as much",
        "activations are those of one micro-batch; gradients accumulate where they are",
    )
    series = (Series("per micro-batch", tuple(p.num_micro_batches for p in points),
                     tuple(p.micro_batch_s * 1e3 for p in points)),)  # fmt: skip
    columns = ("micro-batches", "calls", "step, ms", "per micro-batch, ms", "efficiency")
    chart = Chart("lines", "micro-batches in a step", "time per micro-batch, ms", series, log_x=True)
    return Finding("Gradient accumulation", columns, rows, notes, chart)


def hierarchy(num_bytes: float, network: Network, largest: int) -> Finding:
    """One all-reduce of ``num_bytes``: a flat ring, a tree, two levels."""
    ranks = [n for n in scaling.powers_of_two(largest) if n > 1 and _fills(n, network)]
    algorithms: tuple[Algorithm, ...] = ("ring", "tree", "hierarchical")
    times = {a: [network.all_reduce(n, a).seconds(num_bytes) * 1e3 for n in ranks] for a in algorithms}
    rows = []
    for i, n in enumerate(ranks):
        nodes = max(n // network.ranks_per_node, 1)
        across = ring_bytes(num_bytes, nodes) / network.ranks_per_node if nodes > 1 else 0.0
        rows.append((n, nodes, *(f"{times[a][i]:.2f}" for a in algorithms), told(across)))
    notes = (
        f"of {told(num_bytes)} a flat ring sends {told(ring_bytes(num_bytes, largest))} over every link, the slowest "
        f"included; two levels send 1/{network.ranks_per_node} of it between nodes",
        "a flat ring makes 2(N-1) hops one after the other, a tree 2 log2(N)",
        f"assumed: {_hops(network)}",
    )
    series = tuple(Series(a, tuple(ranks), tuple(times[a])) for a in algorithms)
    columns = ("ranks", "nodes", "ring, ms", "tree, ms", "hierarchical, ms", "between nodes, per rank")
    chart = Chart("lines", "ranks", "one all-reduce, ms", series, log_x=True, log_y=True)
    return Finding(f"One all-reduce of {told(num_bytes)}", columns, tuple(rows), notes, chart)


def crossing(
    backward_ms: float, exposed_ms: float, measured_on: int, largest: int, hop_alpha_us: float, batch_factor: float
) -> Finding:
    """How a measured communication time grows with ranks, against backward: the compute-bound condition."""
    ranks = [n for n in scaling.powers_of_two(largest) if n > 1]

    def curve(at: Sequence[int], hop_us: float) -> list[scaling.Crossing]:
        return scaling.crossings(backward_ms / 1e3, exposed_ms / 1e3, measured_on, at, hop_us / 1e6)

    volume, latent = curve(ranks, 0.0), curve(ranks, hop_alpha_us)
    rows = tuple(
        (
            v.num_ranks,
            f"{v.communication_s * 1e3:.1f}",
            f"{w.communication_s * 1e3:.1f}",
            "communication" if w.communication_bound else "compute",
        )
        for v, w in zip(volume, latent, strict=True)
    )
    limit = exposed_ms * measured_on / (measured_on - 1)
    everyone = curve(range(2, largest + 1), hop_alpha_us)

    def first_over(limit_ms: float) -> str:
        found = next((c.num_ranks for c in everyone if c.communication_s * 1e3 > limit_ms), None)
        return f"from {found:,} ranks" if found else f"not up to {largest:,} ranks"

    notes = (
        f"volume per rank is 2(N-1)/N of the gradients: {exposed_ms:g} ms on {measured_on} ranks becomes at most "
        f"{limit:g} ms, {'under' if limit < backward_ms else 'over'} the {backward_ms:g} ms of backward",
        f"with {hop_alpha_us:g} us for each of a ring's 2(N-1) hops communication exceeds backward "
        f"{first_over(backward_ms)}",
        f"a batch per rank {batch_factor:g} times as large stretches backward to {backward_ms * batch_factor:g} ms, "
        f"and communication stays as it is: then {first_over(backward_ms * batch_factor)}. Accumulating over "
        "micro-batches does the same for the compute between two synchronisations",
    )
    series = (
        Series("communication: volume alone", tuple(ranks), tuple(c.communication_s * 1e3 for c in volume)),
        Series(
            f"communication: {hop_alpha_us:g} us a hop", tuple(ranks), tuple(c.communication_s * 1e3 for c in latent)
        ),
        Series("backward", tuple(ranks), tuple(backward_ms for _ in ranks)),
        Series(f"backward, batch x{batch_factor:g}", tuple(ranks), tuple(backward_ms * batch_factor for _ in ranks)),
    )
    columns = ("ranks", "volume alone, ms", f"with {hop_alpha_us:g} us a hop, ms", "bound by")
    chart = Chart("lines", "ranks", "milliseconds", series, log_x=True)
    return Finding("Where communication outgrows backward", columns, rows, notes, chart)
