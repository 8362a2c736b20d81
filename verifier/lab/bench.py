"""``lockstep bench``: strategies side by side, in the published comparison's columns; results are kept and compared.

Special here: a speed is a ratio. Each round gives one ratio of a strategy's step to the reference's (torch's DDP if it
takes part, else the bare model); the median counts, with its quartiles. Results of two versions are compared by those
ratios, never by milliseconds measured on different days.
"""

from __future__ import annotations

import importlib.metadata
import json
import os
import re
import statistics
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import ddp_core
from ddp_core.buckets import MB
from verifier.errors import UsageError
from verifier.lab.calibration import quartiles_of
from verifier.lab.finding import Bar, Chart, Finding, Series
from verifier.lab.profiled import Entrant, compare
from verifier.lab.ranks import on_ranks
from verifier.lab.workloads import workload
from verifier.naming import describe, parse_options, parse_strategy

SCHEMA = 1
ALONE = "compute alone"
DEFAULT = ("naive", "naive*2", "hook", "async_hook", "bucketed", "torch_ddp")
PERCENTS = ("compute_percent", "non_compute_percent", "idle_percent", "overlap_percent", "overhead_percent")
HEADS = ("compute %", "non-compute %", "idle %", "overlap %", "comm. overhead %")
KINDS = ("parameters", "buffers", "gradients", "optimizer_state", "activations", "total")
Results = dict[str, Any]


def parse_entrant(text: str) -> Entrant:
    """``bucketed``, ``mine.py:wrap``, ``bucketed[bucket_cap_mb=1]``, ``naive*4`` for four micro-batches in a step.

    Raises UsageError or UnknownName for any other text.
    """
    found = re.fullmatch(r"([^\[\]*]+)(?:\[([^\[\]]+)\])?(?:\*(\d+))?", text)
    if found is None or found.group(3) == "0":
        raise UsageError(
            f"'{text}' is no strategy. Write bucketed, mine.py:wrap, bucketed[bucket_cap_mb=1] for options, or naive*4 "
            "for four micro-batches in a step."
        )
    name, options, times = found.group(1), found.group(2), int(found.group(3) or 1)
    ref = parse_strategy(name, parse_options(options.split(",")) if options else None)
    label = describe(ref) + (f"[{options}]" if options else "") + (f"*{times}" if times > 1 else "")
    return Entrant(label, ref, times)


def run(
    entrants: Sequence[Entrant], name: str, world_size: int, *, num_rounds: int, device: str, timeout_s: float
) -> Results:
    """Measure on real ranks; return plain data, in the form that is kept."""
    workload(name)
    rows = [Entrant(ALONE, None), *{e.label: e for e in entrants}.values()]
    raw = on_ranks(world_size, compare, name, rows, num_rounds, device, device=device, timeout_s=timeout_s)
    return {
        "schema": SCHEMA,
        "workload": name,
        "world_size": world_size,
        "device": device,
        "backend": "nccl" if device == "cuda" else "gloo",
        "num_rounds": num_rounds,
        "num_cpus": os.cpu_count(),
        "versions": {"lockstep-ddp": ddp_core.__version__, "torch": importlib.metadata.version("torch")},
        "strategies": {e.label: _merged(e, [rank[e.label] for rank in raw]) for e in rows},
    }


def _merged(entrant: Entrant, ranks: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Merge ranks: shares are means over profiled steps and ranks, and so add up to 100; times are rank 0's.

    ``overlap_percents``: the mean over ranks of each profiled step, for the spread of a comparison in one run.
    """
    shares = {
        key: statistics.fmean(getattr(s, key) for rank in ranks for s in rank["shares"])
        for key in (*PERCENTS, "communication_s")
    }
    steps = zip(*(rank["shares"] for rank in ranks), strict=True)  # in one run the order is the same on every rank
    overlaps = [statistics.fmean(share.overlap_percent for share in step) for step in steps]
    first = ranks[0]
    kept = ("plain_s", "profiled_s", "calls", "num_bytes", "other_calls", "memory", "spans")
    own = {"num_micro_batches": entrant.num_micro_batches, "overlap_percents": overlaps}
    return {**own, **shares, **{key: first[key] for key in kept}}


def load(path: Path) -> Results:
    """Load results. Raises UsageError for a file that holds no results of this schema."""
    try:
        found: Results = json.loads(path.read_text())
        if found["schema"] != SCHEMA or ALONE not in found["strategies"]:
            raise ValueError("another schema")
    except (ValueError, KeyError, TypeError) as error:
        raise UsageError(
            f"'{path}' holds no results of schema {SCHEMA} ({error}). Make some: lockstep bench --output {path}"
        ) from error
    return found


def reference(results: Results) -> str:
    return "torch_ddp" if "torch_ddp" in results["strategies"] else ALONE


def ratios(results: Results, label: str) -> list[float]:
    """Time per micro-batch relative to the reference, one a round."""
    ours, theirs = results["strategies"][label], results["strategies"][reference(results)]
    return [
        a / ours["num_micro_batches"] / (b / theirs["num_micro_batches"])
        for a, b in zip(ours["plain_s"], theirs["plain_s"], strict=True)
    ]


def profiling_overhead(results: Results) -> float:
    """The median over strategies and rounds of profiled / plain, less 1."""
    rows = results["strategies"].values()
    return statistics.median(b / a for r in rows for a, b in zip(r["plain_s"], r["profiled_s"], strict=True)) - 1


def comparison(results: Results) -> Finding:
    """The published columns, and time per micro-batch with its spread."""
    against = reference(results)
    rows = []
    for label, row in results["strategies"].items():
        per = row["num_micro_batches"]
        low, high = quartiles_of(ratios(results, label))
        rows.append((
            label,
            *(f"{row[key]:.1f}" for key in PERCENTS),
            f"{row['calls'] / per:g}",
            f"{row['communication_s'] * 1e3 / per:.2f}",
            f"{statistics.median(row['plain_s']) * 1e3 / per:.2f}",
            f"{statistics.median(ratios(results, label)):.2f} ({low:.2f} to {high:.2f})",
        ))  # fmt: skip
    alone = statistics.median(results["strategies"][ALONE]["plain_s"])
    exposed = {k: statistics.median(r["plain_s"]) - alone * r["num_micro_batches"]
               for k, r in results["strategies"].items()}  # fmt: skip
    notes = (
        "calls, all-reduce ms and time are per micro-batch; naive*2 synchronises once for two of them",
        "exposed, ms a step: " + ", ".join(f"{k} {v * 1e3:.2f}" for k, v in exposed.items() if k != ALONE),
        f"profiled steps take {profiling_overhead(results):+.1%} (median); times are those of steps without profiler",
        f"{results['backend']}, {results['world_size']} ranks on {results['num_cpus']} cores, "
        f"{results['num_rounds']} rounds, torch {results['versions']['torch']}; definitions: docs/performance-lab.md",
    )
    columns = ("strategy", *HEADS, "calls", "all-reduce, ms", "time, ms", f"ratio to {against}")
    labels = tuple(results["strategies"])
    series = tuple(
        Series(head, labels, tuple(results["strategies"][label][key] for label in labels))
        for head, key in zip(HEADS[:4], PERCENTS[:4], strict=True)
    )
    chart = Chart("bars", "", "percent", series)
    facts = {"profiling_overhead": profiling_overhead(results)}
    return Finding(f"{results['workload']} on {results['world_size']} ranks", columns, tuple(rows), notes, chart, facts)


def step_times(results: Results) -> Finding:
    """Time per micro-batch relative to the reference, as bars with quartiles."""
    labels = tuple(results["strategies"])
    spread = [quartiles_of(ratios(results, label)) for label in labels]
    medians = tuple(statistics.median(ratios(results, label)) for label in labels)
    series = Series("median and quartiles", labels, medians, tuple(a for a, _ in spread), tuple(b for _, b in spread))
    rows = tuple((label, m, f"{a:.2f} to {b:.2f}") for label, m, (a, b) in zip(labels, medians, spread, strict=True))
    against = reference(results)
    chart = Chart("bars", "", f"time per micro-batch / {against}", (series,))
    return Finding(f"Time relative to {against}", ("strategy", "ratio", "quartiles"), rows, (), chart)


def memory(results: Results) -> Finding:
    """Bytes by kind on one rank."""
    labels = tuple(results["strategies"])
    kinds = {label: results["strategies"][label]["memory"] for label in labels}
    rows = tuple((label, *(f"{(kinds[label][kind] or 0) / MB:.2f}" for kind in KINDS)) for label in labels)
    series = tuple(
        Series(kind.replace("_", " "), labels, tuple((kinds[label][kind] or 0) / MB for label in labels))
        for kind in KINDS[:-1]
    )
    notes = ("in MB of 2**20 bytes; what a strategy keeps besides gradients (copies, buckets) is not told apart",)
    columns = ("strategy", *(kind.replace("_", " ") for kind in KINDS))
    return Finding("Memory by kind", columns, rows, notes, Chart("bars", "", "MB", series))


def timelines(results: Results) -> Finding:
    """One profiled step of each strategy on rank 0: a lane of compute and a lane of communication."""
    spans = [
        Bar(f"{label}: {kind}", a * 1e3, b * 1e3, "compute" if kind == "compute" else "hidden")
        for label, row in results["strategies"].items()
        for kind in ("compute", "communication")
        for a, b in row["spans"].get(kind, ())
    ]
    chart = Chart("timeline", "milliseconds", "", spans=tuple(spans))
    return Finding("One step on rank 0, as profiled", ("strategy",), (), (), chart)


def require_comparable(old: Results, *, workload: str, world_size: int, device: str, labels: Sequence[str]) -> None:
    """Raise UsageError, before measuring, if ``old`` measured something else or has another reference."""
    for key, value in (("workload", workload), ("world_size", world_size), ("device", device)):
        if old[key] != value:
            raise UsageError(f"the results to compare with are of {key} {old[key]}, not {value}: measure the same.")
    if (reference(old) == ALONE) == ("torch_ddp" in labels):
        raise UsageError("only one of the two has torch_ddp, which ratios are taken to: measure it in both.")


def against(new: Results, old: Results) -> Finding:
    """Compare two versions by ratios to the reference that both have (``require_comparable``)."""
    rows = []
    for label in new["strategies"]:
        if label not in old["strategies"]:
            continue
        before, now = ratios(old, label), ratios(new, label)
        (low, high), (low_now, high_now) = quartiles_of(before), quartiles_of(now)
        word = "slower" if low_now > high else "faster" if high_now < low else "within the spread"
        rows.append((label, f"{statistics.median(before):.2f} ({low:.2f} to {high:.2f})",
                     f"{statistics.median(now):.2f} ({low_now:.2f} to {high_now:.2f})",
                     f"{old['strategies'][label]['calls']} to {new['strategies'][label]['calls']}", word))  # fmt: skip
    was, now_is = (r["versions"]["lockstep-ddp"] for r in (old, new))
    columns = ("strategy", f"before ({was})", f"now ({now_is})", "calls", "")
    return Finding(f"Against earlier results: time relative to {reference(new)}", columns, tuple(rows))
