"""Checks the performance lab's claims by measurement: docs/performance-lab.md.

Special here: every figure of the page is from one run of this command, and a bound that is not met is reported as such.
Measuring and writing are two steps: results are kept in a folder, so that the page can be written again from them.

    python benchmarks/performance_lab.py measure FOLDER [--workload mlp]... [--world-size 2]... [--rounds 8]
    python benchmarks/performance_lab.py page FOLDER --write docs/performance-lab.md
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import sys
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent.parent))
from ddp_core.buckets import MB
from verifier.lab import bench, calibration, tuning
from verifier.lab.calibration import Calibration, quartiles_of

WORKLOADS = ("mlp", "cnn", "llama")
CAPS_MB = {"mlp": (0.25, 4.0, 5.0, 25.0), "cnn": (0.001, 0.01, 0.1, 25.0), "llama": (1.0, 4.0, 25.0, 100.0)}
SAME_BUCKETS = {"mlp": 1.0, "cnn": 0.02, "llama": 4.0}
TOLD = "torch_ddp[bucket_cap_mb=25]"  # its default cap; but with an explicit cap it has no first bucket of 1 MB
TIMEOUT_S = 1200.0


def measure(folder: Path, workloads: list[str], world_sizes: list[int], rounds: int) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for workload in workloads:
        caps = tuple(cap * MB for cap in CAPS_MB[workload])
        for n in world_sizes:
            found, measured = tuning.calibrate(workload, n, check_bytes=caps, num_rounds=rounds, timeout_s=TIMEOUT_S)
            found.save(folder / f"calibration-{workload}-{n}.json")
            (folder / f"steps-{workload}-{n}.json").write_text(json.dumps({str(k): v for k, v in measured.items()}))
            print(calibration.report(found, measured).to_text(), flush=True)
            cap = SAME_BUCKETS[workload]
            same = f"bucket_cap_mb={cap}"
            names = ["naive", "naive*2", "hook", "async_hook", "bucketed", "torch_ddp", f"bucketed[{same}]",
                     f"torch_ddp[{same}]", TOLD]  # fmt: skip
            results = bench.run(
                [bench.parse_entrant(name) for name in names], workload, n, num_rounds=max(rounds // 2, 3),
                device="cpu", timeout_s=TIMEOUT_S,
            )  # fmt: skip
            (folder / f"bench-{workload}-{n}.json").write_text(json.dumps(results))
            print(bench.comparison(results).to_text(), flush=True)


def sections(folder: Path) -> tuple[list[str], list[str]]:
    """The tables, and one line with a verdict for each claim."""
    tables, errors, tuned, overheads, orders = [], [], [], [], []
    for path in sorted(folder.glob("calibration-*.json")):
        key = path.stem.removeprefix("calibration-")
        found = Calibration.load(path)
        steps = {float(k): v for k, v in json.loads((folder / f"steps-{key}.json").read_text()).items()}
        report = calibration.report(found, steps)
        errors += [abs(found.step_s(cap) / statistics.median(seconds) - 1) for cap, seconds in steps.items()]
        tables.append(report.to_markdown("###"))
        tuned.append((key, *choice(found, steps)))
        kept = folder / f"bench-{key}.json"
        if kept.exists():
            results = bench.load(kept)
            tables.append(bench.comparison(results).to_markdown("###"))
            overheads.append(bench.profiling_overhead(results))
            orders.append((key, results))
    claims = [
        claim("Predicted step time, median error over workloads, ranks and bucket sizes",
              f"{statistics.median(errors):.1%} of {len(errors)} predictions (worst {max(errors):.0%})", "15 %",
              statistics.median(errors) <= 0.15),
        *(claim(f"Chosen bucket against the best measured, {key}", f"{over:+.1%} (quartiles "
                f"{low:+.1%} to {high:+.1%})", "5 %", over <= 0.05) for key, over, low, high in tuned),
    ]  # fmt: skip
    if overheads:
        worst = max(overheads)
        text = f"{statistics.median(overheads):+.1%} (median over runs; largest {worst:+.1%})"
        claims.append(claim("Profiling, of the step", text, "5 %", worst < 0.05))
    for key, results in orders:
        claims += ordering(key, results)
    return tables, claims


def choice(found: Calibration, steps: dict[float, list[float]]) -> tuple[float, float, float]:
    """How much slower the size that ``tune`` would choose is than the one with the shortest *measured* step."""
    layouts: dict[tuple[int, ...], list[float]] = {}  # sizes with the same buckets count as one configuration
    for cap, seconds in steps.items():
        layouts.setdefault(found.layout(cap), []).extend(seconds)
    chosen = layouts[found.layout(tuning.choose(found, list(steps)))]
    best = min(layouts.values(), key=statistics.median)
    middle = statistics.median(best)
    ratios = [seconds / middle - 1 for seconds in chosen]
    return statistics.median(ratios), *quartiles_of(ratios)


def ordering(key: str, results: dict[str, Any]) -> list[str]:
    rows = results["strategies"]
    halves = rows["naive*2"]["calls"] == rows["naive"]["calls"] > 0  # calls per step, which has twice the samples
    overlap = {label: row["overlap_percent"] for label, row in rows.items()}
    mine, theirs = (next(k for k in rows if k.startswith(f"{name}[")) for name in ("bucketed", "torch_ddp"))
    return [
        claim(f"Accumulation halves the calls, {key}",
              f"{rows['naive']['calls']} a micro-batch, {rows['naive*2']['calls'] / 2:g} with two", "half", halves),
        claim(f"Hooks alone give no overlap, {key}", f"hook {overlap['hook']:.1f} %", "under 1 %",
              overlap["hook"] < 1),
        compared(f"`bucketed` overlaps at least as much as torch's DDP, defaults, {key}",
                 rows["bucketed"], rows["torch_ddp"]),
        compared(f"The same, torch's told its cap (25 MB), {key}", rows["bucketed"], rows[TOLD]),
        compared(f"The same, equal caps ({mine.partition('[')[2].rstrip(']')}), {key}",
                 rows[mine], rows[theirs]),
    ]  # fmt: skip


def compared(what: str, mine: dict[str, Any], theirs: dict[str, Any]) -> str:
    """A row that compares overlap step by step; a lower median with 0 inside the quartiles is "not told apart"."""
    differences = [a - b for a, b in zip(mine["overlap_percents"], theirs["overlap_percents"], strict=True)]
    low, high = quartiles_of(differences)
    seen = (f"{mine['overlap_percent']:.1f} % against {theirs['overlap_percent']:.1f} %; step by step "
            f"{statistics.median(differences):+.1f} ({low:+.1f} to {high:+.1f})")  # fmt: skip
    verdict = "met" if statistics.median(differences) >= 0 else "**not met**" if high < 0 else "not told apart"
    return f"| {what} | {seen} | at least | {verdict} |"


def claim(what: str, seen: str, bound: str, met: bool) -> str:
    return f"| {what} | {seen} | {bound} | {'met' if met else '**not met**'} |"


def page(folder: Path) -> str:
    tables, claims = sections(folder)
    head = Path(__file__).with_name("performance_lab.md").read_text()
    claimed = "\n".join(["| claim | seen | bound | |", "|---|---|---|---|", *claims])
    return head.format(cpus=os.cpu_count(), claims=claimed, tables="\n".join(tables))


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    commands = parser.add_subparsers(dest="command", required=True)
    measuring, writing = commands.add_parser("measure"), commands.add_parser("page")
    for command in (measuring, writing):
        command.add_argument("folder", type=Path)
    measuring.add_argument("--workload", action="append", choices=WORKLOADS)
    measuring.add_argument("--world-size", action="append", type=int)
    measuring.add_argument("--rounds", type=int, default=8)
    writing.add_argument("--write", type=Path)
    words = parser.parse_args()
    if words.command == "measure":
        measure(words.folder, words.workload or list(WORKLOADS), words.world_size or [2, 4], words.rounds)
    elif words.write:
        words.write.write_text(page(words.folder))
    else:
        print(page(words.folder))


if __name__ == "__main__":
    main()
