"""Measures a verification's time against the model's size and the number of ranks: docs/cost.md and its plot.

Special here: it runs one scenario (``float32``: three layers, three steps, ``bucketed``) and changes only the model's
width or the world size. It runs all sizes in turn, several times, and takes medians. Where ranks outnumber cores they
wait for one another: the time of a scenario is then the sum of its ranks' times.

    python benchmarks/cost.py [--rounds 5] [--write docs/cost.md]     the plot needs matplotlib: lockstep-ddp[bench]
"""

from __future__ import annotations

import argparse
import statistics
import sys
import tempfile
import time
from collections import defaultdict
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).parent.parent))
from verifier import engine, reading
from verifier.judge.judging import load_checks, run_check
from verifier.launcher import Launcher
from verifier.request import Builtin, Request
from verifier.scenario import Scenario
from verifier.situation import plan

WIDTHS = (64, 128, 256, 512, 768)
WORLD_SIZES = (2, 4, 8, 16, 32)
FIXED_WIDTH, FIXED_WORLD_SIZE = 64, 2


def scenario(width: int, world_size: int) -> Scenario:
    request = Request(strategy=Builtin(name="bucketed"), world_size=world_size)
    chosen = next(s for s in plan(request) if s.situation == "float32")
    return chosen.model_copy(update={"width": width, "small_buckets": False, "timeout_s": 300.0})


def num_parameters(width: int) -> int:
    return 3 * (width * width + width)


def measure(launcher: Launcher, what: Scenario) -> tuple[float, float]:
    """Seconds to make the recording, and seconds to judge it."""
    with tempfile.TemporaryDirectory(prefix="lockstep-") as folder:
        what.save(Path(folder))
        begun = time.perf_counter()
        launcher.run(what, Path(folder), what.timeout_s)
        made = time.perf_counter()
        recording = reading.read(Path(folder))
        results = [run_check(check, [recording], [what]) for check in load_checks()]
        judged = time.perf_counter()
    wrong = [r.code for r in results if r.verdict == "fail"]
    if not recording.complete or wrong:
        raise SystemExit(f"width {what.width}, world size {what.world_size}: {wrong or 'not complete'}")
    return made - begun, judged - made


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--write", type=Path)
    words = parser.parse_args()
    times: dict[tuple[int, int], list[tuple[float, float]]] = defaultdict(list)
    sizes = [(w, FIXED_WORLD_SIZE) for w in WIDTHS] + [(FIXED_WIDTH, n) for n in WORLD_SIZES]
    with engine.start_launcher("local") as launcher:
        measure(launcher, scenario(FIXED_WIDTH, FIXED_WORLD_SIZE))
        for _ in range(words.rounds):
            for width, world_size in dict.fromkeys(sizes):
                times[width, world_size].append(measure(launcher, scenario(width, world_size)))
                print(width, world_size, times[width, world_size][-1], file=sys.stderr)
    medians = {
        size: tuple(statistics.median(column) for column in zip(*rows, strict=True)) for size, rows in times.items()
    }
    by_size = [(num_parameters(w), *medians[w, FIXED_WORLD_SIZE]) for w in WIDTHS]
    by_ranks = [(n, *medians[FIXED_WIDTH, n]) for n in WORLD_SIZES]
    text = page(by_size, by_ranks, words.rounds)
    print(text)
    if words.write:
        plot(by_size, by_ranks, words.write.with_suffix(".svg"))
        engine.write_atomically(words.write, text)


def exponent(rows: list[tuple[float, ...]]) -> float:
    """The slope in a double logarithmic plot, without the two smallest sizes, where fixed costs would hide it."""
    x, y = np.log([r[0] for r in rows[2:]]), np.log([r[1] + r[2] for r in rows[2:]])
    return float(np.polyfit(x, y, 1)[0])


def page(by_size: list[tuple[float, ...]], by_ranks: list[tuple[float, ...]], rounds: int) -> str:
    def table(head: str, rows: list[tuple[float, ...]]) -> list[str]:
        lines = [f"| {head} | recorded in, s | judged in, s |", "|---:|---:|---:|"]
        return [*lines, *(f"| {int(r[0]):,} | {r[1]:.2f} | {r[2]:.3f} |" for r in rows), ""]

    return "\n".join(
        [
            "# What a verification costs",
            "",
            "Written by `python benchmarks/cost.py --write docs/cost.md`: one scenario (`float32`, three steps), two",
            f"cores, medians of {rounds} rounds. Linear is an exponent of 1 or less.",
            "",
            "![cost against parameters and ranks](cost.svg)",
            "",
            f"Against parameters, {FIXED_WORLD_SIZE} ranks (exponent {exponent(by_size):.2f}):",
            "",
            *table("parameters", by_size),
            f"Against ranks, {num_parameters(FIXED_WIDTH):,} parameters (exponent {exponent(by_ranks):.2f}):",
            "",
            *table("ranks", by_ranks),
        ]
    )


def plot(by_size: list[tuple[float, ...]], by_ranks: list[tuple[float, ...]], path: Path) -> None:
    import matplotlib

    matplotlib.use("svg")
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(1, 2, figsize=(9, 3.4), sharey=True)
    for axis, rows, label in zip(axes, (by_size, by_ranks), ("parameters", "ranks"), strict=True):
        x = [r[0] for r in rows]
        axis.loglog(x, [r[1] for r in rows], marker="o", label="recording")
        axis.loglog(x, [r[2] for r in rows], marker="s", label="judging")
        axis.loglog(x, [rows[0][1] * value / x[0] for value in x], ls=":", color="grey", label="linear")
        axis.set_xlabel(label)
        axis.grid(alpha=0.3)
    axes[0].set_ylabel("seconds")
    axes[0].legend()
    figure.tight_layout()
    figure.savefig(path, metadata={"Date": None})


if __name__ == "__main__":
    main()
