"""Calibrate, check the predictions, and tune: choose a bucket size from the model, then measure what it gains.

Special here: the expected gain is printed before it is measured, and both are reported, whether met or not.
``exhaustive`` also measures every size, in the same rounds, to see how far the choice is from the best.
"""

from __future__ import annotations

import statistics
from collections.abc import Collection
from typing import Any

import torch

from ddp_core.buckets import MB
from ddp_core.cost import DEFAULT_CAP_BYTES
from verifier.errors import UsageError
from verifier.lab import probes
from verifier.lab.calibration import SIZES_BYTES, Calibration, caps_for, from_survey, quartiles_of, spread
from verifier.lab.finding import Chart, Finding, Series
from verifier.lab.quantities import told
from verifier.lab.ranks import on_ranks
from verifier.lab.workloads import workload
from verifier.request import Builtin, StrategyRef

TUNABLE = ("bucketed", "torch_ddp")
CHECKED_BYTES = tuple(cap * MB for cap in (0.05, 0.25, 1.0, 4.0, 8.0, 25.0, 100.0))


def strategy_with(name: str, cap_bytes: float) -> Builtin:
    """``name`` with buckets of ``cap_bytes``. Raises UsageError for a strategy without buckets."""
    if name not in TUNABLE:
        raise UsageError(f"'{name}' has no bucket size to tune. Those that have: {', '.join(TUNABLE)}.")
    return Builtin(name=name, options={"bucket_cap_mb": cap_bytes / MB})


def calibrate(
    name: str,
    world_size: int,
    *,
    strategy: str = "bucketed",
    check_bytes: tuple[float, ...] = (),
    num_rounds: int = 12,
    device: str = "cpu",
    timeout_s: float = 600.0,
) -> tuple[Calibration, dict[float, list[float]]]:
    """Measure a calibration, and in the same rounds the seconds of whole steps with buckets of ``check_bytes``."""
    workload(name)
    also: dict[str, StrategyRef | None] = {str(cap): strategy_with(strategy, cap) for cap in check_bytes}
    raw = on_ranks(
        world_size, probes.survey, name, strategy_with(strategy, DEFAULT_CAP_BYTES), also, SIZES_BYTES, num_rounds,
        device, device=device, timeout_s=timeout_s,
    )  # fmt: skip
    found = from_survey(raw, workload=name, strategy=strategy, device=device, torch_version=torch.__version__)
    return found, {float(cap): raw[0]["steps"][str(cap)] for cap in check_bytes}


def choose(calibration: Calibration, among: Collection[float] = ()) -> float:
    """The bucket size to use: of those within 1 % of the shortest predicted step the largest, with the fewest calls.

    If the default makes the same buckets, it is the default, because one layout under two names differs by noise only.
    ``among``: the sizes to choose from, in bytes; by default those of ``caps_for``.
    """
    caps, default = among or caps_for(calibration), float(DEFAULT_CAP_BYTES)
    shortest = min(calibration.step_s(cap) for cap in caps)
    chosen = max(cap for cap in caps if calibration.step_s(cap) <= shortest * 1.01)
    return default if calibration.layout(chosen) == calibration.layout(default) else chosen


def expectation(calibration: Calibration) -> str:
    """The expected gain in one sentence, to be printed before it is measured."""
    c, chosen = calibration, choose(calibration)
    gain = 1 - c.step_s(chosen) / c.step_s(DEFAULT_CAP_BYTES)
    return f"expects buckets of {told(chosen)} to save {gain:.1%} of the step with 25 MB; measuring"


def tune(calibration: Calibration, *, exhaustive: bool, num_rounds: int, timeout_s: float = 600.0) -> Finding:
    """Choose a size, and measure it and the default (or all sizes) in alternation."""
    c, chosen, default = calibration, choose(calibration), float(DEFAULT_CAP_BYTES)
    others = [cap for cap in caps_for(c) if c.layout(cap) != c.layout(default)] if exhaustive else []
    caps = sorted({chosen, default, *others})
    refs: dict[str, StrategyRef | None] = {str(cap): strategy_with(c.strategy, cap) for cap in caps}
    raw = on_ranks(
        c.world_size, probes.steps, c.workload, refs, num_rounds, c.device, device=c.device, timeout_s=timeout_s
    )
    return tuned(c, chosen, {float(cap): seconds for cap, seconds in raw[0].items()})


def tuned(calibration: Calibration, chosen: float, seconds: dict[float, list[float]]) -> Finding:
    """The expected and the measured gain of ``chosen``. Pure; ``seconds`` by bucket size, one figure a round."""
    c, default = calibration, float(DEFAULT_CAP_BYTES)
    seen = {cap: statistics.median(figures) for cap, figures in seconds.items()}
    expected = 1 - c.step_s(chosen) / c.step_s(default)
    ratios = [a / b for a, b in zip(seconds[chosen], seconds[default], strict=True)]
    low, high = quartiles_of(ratios)
    gained = 1 - statistics.median(ratios)
    best = min(seen, key=seen.__getitem__)
    over_best = statistics.median(a / b for a, b in zip(seconds[chosen], seconds[best], strict=True)) - 1
    rows = tuple(
        (told(cap) + (" (chosen)" if cap == chosen else " (default)" if cap == default else ""),
         len(c.timeline(cap).transfers), f"{c.step_s(cap) * 1e3:.2f}", f"{seen[cap] * 1e3:.2f}", spread(seconds[cap]))
        for cap in sorted(seen)
    )  # fmt: skip
    notes = [
        f"chosen: {told(chosen)}, that is bucket_cap_mb={chosen / MB:.4g}; expected to save {expected:.1%} of the step "
        f"with 25 MB; saves {gained:.1%} (quartiles {1 - high:.1%} to {1 - low:.1%}, {len(ratios)} alternating rounds)",
    ]
    if len(seen) > 2:
        notes.append(f"the best of all {len(seen)} measured is {told(best)}; the chosen is {over_best:+.1%} from it")
    facts: dict[str, Any] = {"chosen_bytes": chosen, "expected_gain": expected, "measured_gain": gained,
                             "best_bytes": best, "over_best": over_best}  # fmt: skip
    caps = sorted(seen)
    series = (
        Series("expected", tuple(cap / MB for cap in caps), tuple(c.step_s(cap) * 1e3 for cap in caps)),
        Series("measured", tuple(cap / MB for cap in caps), tuple(seen[cap] * 1e3 for cap in caps),
               tuple(quartiles_of(seconds[cap])[0] * 1e3 for cap in caps),
               tuple(quartiles_of(seconds[cap])[1] * 1e3 for cap in caps)),
    )  # fmt: skip
    chart = Chart("lines", "bucket size, MB", "step, ms", series, marks=((25.0, "25 MB"),), log_x=True)
    columns = ("bucket", "calls", "expected, ms", "measured, ms", "quartiles, ms")
    title = f"{c.workload} under {c.strategy} on {c.world_size} ranks: tuned"
    return Finding(title, columns, rows, tuple(notes), chart, facts)
