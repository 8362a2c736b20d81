"""The cost model's answers, as findings: one timeline, bucket sweeps, accumulation, memory. Pure.

Special here: the three exercises of the published bucketing document are answered by ``timeline`` (which bucket is
exposed, and why), ``sweeps`` (what latency and bandwidth do to the best size) and ``verifier.lab.growth`` (when
communication outgrows backward).
"""

from __future__ import annotations

from collections.abc import Sequence

from ddp_core import cost, memory_wall
from ddp_core.buckets import MB
from ddp_core.cost import Contention, Layer, Link
from ddp_core.memory_wall import Precision
from verifier.lab.finding import Bar, Chart, Finding, Series
from verifier.lab.quantities import told


def timeline(layers: Sequence[Layer], cap_bytes: float, link: Link, contention: Contention, fill: cost.Fill) -> Finding:
    """When each bucket is ready, starts and ends, and which part of it nothing hides."""
    found = cost.timeline(layers, cap_bytes, link, contention=contention, fill=fill)
    baseline = cost.no_overlap_s(layers, link)
    end = found.backward_end_s
    rows = tuple(
        (
            f"{i} ({t.num_gradients} tensors)",
            told(t.num_bytes),
            t.ready_s * 1e3,
            t.start_s * 1e3,
            t.end_s * 1e3,
            max(t.end_s - max(t.start_s, end), 0.0) * 1e3,
        )
        for i, t in enumerate(found.transfers)
    )
    spans = [Bar("compute", 0.0, end * 1e3, "compute", "backward")]
    for i, t in enumerate(found.transfers):
        hidden = min(max(end, t.start_s), t.end_s)
        if hidden > t.start_s:
            spans.append(Bar("network", t.start_s * 1e3, hidden * 1e3, "hidden", str(i)))
        if t.end_s > hidden:
            spans.append(Bar("network", hidden * 1e3, t.end_s * 1e3, "exposed", str(i)))
    last = found.transfers[-1]
    notes = (
        f"step {found.step_s * 1e3:.1f} ms; backward {found.backward_alone_s * 1e3:.1f} ms; exposed "
        f"{found.exposed_s * 1e3:.1f} ms; without overlap {baseline * 1e3:.1f} ms, "
        f"{baseline / found.step_s:.2f} times as long; efficiency {found.efficiency:.0%}",
        f"the last bucket ({told(last.num_bytes)}) cannot be hidden: it holds the first layer, whose gradient backward "
        f"computes last, so it is ready at {last.ready_s * 1e3:.1f} ms, when nothing is left to hide behind",
        _smaller_first(layers, cap_bytes, link, contention, fill),
    )
    facts = {"step_s": found.step_s, "exposed_s": found.exposed_s, "backward_s": found.backward_alone_s,
             "no_overlap_s": baseline, "efficiency": found.efficiency, "num_buckets": len(found.transfers)}  # fmt: skip
    columns = ("bucket", "bytes", "ready, ms", "starts, ms", "ends, ms", "exposed, ms")
    chart = Chart("timeline", "milliseconds from the start of backward", "", spans=tuple(spans))
    return Finding(f"One backward with buckets of {told(cap_bytes)}", columns, rows, notes, chart, facts)


def _smaller_first(
    layers: Sequence[Layer], cap_bytes: float, link: Link, contention: Contention, fill: cost.Fill
) -> str:
    first, *others = layers
    tenth = [Layer(max(first.num_bytes // 10, 1), first.backward_s), *others]
    found = cost.timeline(tenth, cap_bytes, link, contention=contention, fill=fill)
    return (
        f"with a tenth of the bytes in the first layer ({told(tenth[0].num_bytes)}) {found.exposed_s * 1e3:.1f} ms "
        "would be exposed: group small, early layers into the last bucket, and large ones before it"
    )


def sweeps(
    layers: Sequence[Layer],
    links: Sequence[Link],
    caps_bytes: Sequence[float],
    contention: Contention,
    fill: cost.Fill,
) -> Finding:
    """Step time against bucket size, a curve for each link."""
    found = [cost.sweep(layers, link, caps_bytes, contention=contention, fill=fill) for link in links]
    names = [f"alpha {link.alpha_s * 1e3:g} ms, beta {link.beta_s_per_byte * 1e9:.3g} ns/B" for link in links]
    columns = ("bucket", "calls", *(f"step, ms ({name})" if len(names) > 1 else "step, ms" for name in names))
    rows = tuple(
        (
            told(cap),
            len(found[0].points[i].timeline.transfers),
            *(f"{sweep.points[i].timeline.step_s * 1e3:.1f}" for sweep in found),
        )
        for i, cap in enumerate(caps_bytes)
    )
    notes = []
    for name, link, sweep in zip(names, links, found, strict=True):
        low, high = _valley(sweep)
        notes.append(
            f"{name}: best {sweep.best.timeline.step_s * 1e3:.1f} ms, within 1 % from {told(low)} to {told(high)}; "
            f"the default of 25 MB {sweep.default.timeline.step_s * 1e3:.1f} ms (the best saves {sweep.gain:.1%}); "
            f"no overlap {cost.no_overlap_s(layers, link) * 1e3:.1f} ms; backward alone "
            f"{sweep.default.timeline.backward_alone_s * 1e3:.1f} ms"
        )
    notes.append(
        "T(n) = alpha + beta n: each bucket pays alpha once, so a larger alpha moves the best size up; beta is paid "
        "for every byte whatever the size, so a faster link lowers the valley and leaves small buckets latency-bound"
    )
    series = tuple(
        Series(name, tuple(c / MB for c in caps_bytes), tuple(p.timeline.step_s * 1e3 for p in sweep.points))
        for name, sweep in zip(names, found, strict=True)
    )
    chart = Chart("lines", "bucket size, MB", "step, ms", series, marks=((25.0, "25 MB"),), log_x=True)
    facts = {"best_bytes": [s.best.cap_bytes for s in found], "best_s": [s.best.timeline.step_s for s in found],
             "default_s": [s.default.timeline.step_s for s in found], "gain": [s.gain for s in found]}  # fmt: skip
    return Finding("Step time against bucket size", columns, rows, tuple(notes), chart, facts)


def strategies(
    layers: Sequence[Layer], cap_bytes: float, link: Link, contention: Contention, fill: cost.Fill
) -> Finding:
    """Compare ways to synchronise: when they send, and in how many calls."""
    total, backward_s = sum(layer.num_bytes for layer in layers), sum(layer.backward_s for layer in layers)
    best = cost.sweep(layers, link, cost.sizes_between(total / 1000, total, 40), contention=contention, fill=fill).best
    tensors = cost.timeline(layers, 1, link, contention=contention, fill=fill)
    given = cost.timeline(layers, cap_bytes, link, contention=contention, fill=fill)
    ways = (
        ("naive: each tensor, after backward", len(layers), cost.no_overlap_s(layers, link)),
        ("flat: one buffer, after backward", 1, backward_s + link.seconds(total)),
        ("async_hook: each tensor, during backward", len(tensors.transfers), tensors.step_s),
        (f"bucketed: {told(cap_bytes)}, during backward", len(given.transfers), given.step_s),
        (f"bucketed: {told(best.cap_bytes)}, the best", len(best.timeline.transfers), best.timeline.step_s),
    )
    rows = tuple((name, calls, f"{s * 1e3:.1f}", f"{(s - backward_s) * 1e3:.1f}") for name, calls, s in ways)
    notes = (
        f"backward alone takes {backward_s * 1e3:.1f} ms; what is beyond it is exposed",
        "a hook that waits for its own all-reduce hides nothing: it takes what naive takes",
    )
    names = tuple(name.partition(":")[0] if i < 3 else name.partition(",")[0] for i, (name, _, _) in enumerate(ways))
    chart = Chart("bars", "strategy", "step, ms", (Series("step", names, tuple(s * 1e3 for _, _, s in ways)),))
    facts = {name: s for name, _, s in ways}
    return Finding("Strategies compared", ("strategy", "calls", "step, ms", "exposed, ms"), rows, notes, chart, facts)


def _valley(sweep: cost.Sweep) -> tuple[float, float]:
    limit = sweep.best.timeline.step_s * 1.01
    good = [point.cap_bytes for point in sweep.points if point.timeline.step_s <= limit]
    return min(good), max(good)


def memory(
    num_parameters: float, num_ranks: int, memory_bytes: float, precision: Precision, group_size: int | None
) -> Finding:
    """State per rank under each scheme, the bytes that it sends, and which schemes fit."""
    hsdp_too = group_size is not None and num_ranks % group_size == 0
    schemes = [scheme for scheme in memory_wall.SCHEMES if scheme != "hsdp" or hsdp_too]
    states = [
        memory_wall.state(num_parameters, num_ranks, scheme, precision=precision, group_size=group_size)
        for scheme in schemes
    ]
    rows = tuple(
        (
            f"{s.scheme} in groups of {group_size}" if s.scheme == "hsdp" else s.scheme,
            told(s.weights_bytes),
            told(s.gradients_bytes),
            told(s.optimizer_bytes),
            told(s.total_bytes),
            told(s.sent_bytes),
            "yes" if s.total_bytes <= memory_bytes else "no",
        )
        for s in states
    )
    largest = memory_wall.largest_model(memory_bytes, num_ranks, "ddp", precision=precision)
    notes = (
        _way_out(states, memory_bytes),
        f"plain data parallelism ends at {largest / 1e9:.3g} billion parameters, whatever the number of ranks",
        f"{precision.total} bytes per parameter (weights {precision.weights}, gradients {precision.gradients}, "
        f"optimizer {precision.optimizer}); activations, buffers and fragmentation come on top",
    )
    chart = Chart("bars", "scheme", "state per rank, GB", tuple(
        Series(label, tuple(row[0] for row in rows), tuple(getattr(s, name) / 1e9 for s in states))
        for label, name in (
            ("weights", "weights_bytes"), ("gradients", "gradients_bytes"), ("optimizer", "optimizer_bytes"))
    ), log_y=True)  # fmt: skip
    columns = ("scheme", "weights", "gradients", "optimizer", "state per rank", "sent per step", "fits")
    title = f"{num_parameters / 1e9:.3g} billion parameters on {num_ranks} ranks of {told(memory_bytes)}"
    facts = {str(s.scheme): {"state_bytes": s.total_bytes, "sent_bytes": s.sent_bytes} for s in states}
    return Finding(title, columns, rows, notes, chart, facts)


def _way_out(states: Sequence[memory_wall.State], memory_bytes: float) -> str:
    """Which of ``states`` fits at the least communication; the first is plain data parallelism."""
    plain = states[0]
    if plain.total_bytes <= memory_bytes:
        return "plain data parallelism fits: nothing has to be sharded"
    fits = sorted((s for s in states if s.total_bytes <= memory_bytes), key=lambda s: s.sent_bytes)
    if not fits:
        return f"no scheme fits on {plain.num_ranks} ranks: add ranks, or split the model itself (tensor, pipeline)"
    ratio = fits[0].sent_bytes / plain.sent_bytes if plain.sent_bytes else 1.0
    return f"the wall is passed with {fits[0].scheme}, which sends {ratio:.2f} times what plain data parallelism would"
