"""The result of calibrating, as a file, and the step times predicted from it.

Special here: every rank waits for the slowest one, so compute time is the largest over ranks in each round, then the
median over rounds. Predictions use the measured curve of message times; alpha and beta are its summary for people.
Contention for shared cores is measured (backward and messages started together), never assumed.
"""

from __future__ import annotations

import dataclasses
import json
import os
import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ddp_core import cost
from ddp_core.buckets import MB
from ddp_core.cost import Contention, Layer, Link, Timeline
from ddp_core.measured import Curve, contention_from, fit_link
from verifier.errors import UsageError
from verifier.lab.finding import Chart, Finding, Series
from verifier.lab.quantities import told

SCHEMA = 1
SIZES_BYTES = tuple(1024 * 4**i for i in range(9))  # 1 KB to 64 MB
CAPS_MB = (0.0625, 0.125, 0.25, 0.5, 1.0, 2.0, 4.0, 8.0, 16.0, 25.0, 50.0, 100.0)


@dataclass(frozen=True)
class Calibration:
    """One machine, backend and workload under one strategy, on ``world_size`` ranks. Times are medians, in seconds.

    ``layers`` are the parameters, in reverse order of when gradients are ready, each with its share of backward.
    """

    workload: str
    strategy: str
    world_size: int
    backend: str
    device: str
    num_cpus: int
    torch: str
    num_rounds: int
    link: Link
    curve: Curve
    forward_s: float
    optimizer_s: float
    layers: tuple[Layer, ...]
    contention: Contention

    @property
    def backward_s(self) -> float:
        return sum(layer.backward_s for layer in self.layers)

    @property
    def num_bytes(self) -> int:
        return sum(layer.num_bytes for layer in self.layers)

    def timeline(self, cap_bytes: float) -> Timeline:
        fill: cost.Fill = "until_full" if self.strategy == "torch_ddp" else "up_to_cap"
        return cost.timeline(self.layers, cap_bytes, self.curve, contention=self.contention, fill=fill)

    def layout(self, cap_bytes: float) -> tuple[int, ...]:
        """Bytes of each bucket. Bucket sizes with the same layout are the same configuration."""
        return tuple(transfer.num_bytes for transfer in self.timeline(cap_bytes).transfers)

    def step_s(self, cap_bytes: float) -> float:
        """The step time to expect with buckets of ``cap_bytes``."""
        return self.forward_s + self.timeline(cap_bytes).step_s + self.optimizer_s

    def save(self, path: Path) -> None:
        path.write_text(json.dumps({"schema": SCHEMA, **dataclasses.asdict(self)}, indent=1) + "\n")

    @classmethod
    def load(cls, path: Path) -> Calibration:
        """Load a calibration. Raises UsageError for a file that is none of this schema."""
        try:
            found = json.loads(path.read_text())
            if found.pop("schema") != SCHEMA:
                raise ValueError("another schema")
            curve = Curve(**{key: tuple(value) for key, value in found.pop("curve").items()})
            layers = tuple(Layer(**layer) for layer in found.pop("layers"))
            link, contention = Link(**found.pop("link")), Contention(**found.pop("contention"))
            return cls(**found, curve=curve, layers=layers, link=link, contention=contention)
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise UsageError(
                f"'{path}' is no calibration of schema {SCHEMA} ({error}). Make one: lockstep calibrate --output {path}"
            ) from error


def from_survey(
    raw: Sequence[dict[str, Any]], *, workload: str, strategy: str, device: str, torch_version: str
) -> Calibration:
    """Make a calibration from every rank's result of ``verifier.lab.probes.survey``."""
    first = raw[0]
    median = statistics.median

    def slowest(key: str) -> float:
        return median(max(figures) for figures in zip(*(rank[key] for rank in raw), strict=True))

    sizes = sorted(first["messages"])
    times = [median(max(f) for f in zip(*(rank["messages"][s] for rank in raw), strict=True)) for s in sizes]
    # Factors of medians, not the median of factors: with a small divisor a single round's factor is only noise.
    both = [figures for rank in raw for figures in rank["both"]]
    contention = contention_from(**{key: median(figures[key] for figures in both) for key in both[0]})
    return Calibration(
        workload=workload,
        strategy=strategy,
        world_size=len(raw),
        backend="nccl" if device == "cuda" else "gloo",
        device=device,
        num_cpus=os.cpu_count() or 1,
        torch=torch_version,
        num_rounds=len(first["backward_s"]),
        link=fit_link(sizes, times),
        curve=Curve(tuple(sizes), tuple(times)),
        forward_s=slowest("forward_s"),
        optimizer_s=slowest("optimizer_s"),
        layers=layers_from(first["ready_s"], first["num_bytes"], slowest("backward_s")),
        contention=contention,
    )


def layers_from(ready_s: Sequence[Sequence[float]], num_bytes: Sequence[int], backward_s: float) -> tuple[Layer, ...]:
    """Parameters by when they are ready (last first), with shares of ``backward_s`` as the medians of ``ready_s``."""
    ready = [statistics.median(times) for times in ready_s]
    order = sorted(range(len(ready)), key=ready.__getitem__)
    scale = backward_s / ready[order[-1]]
    layers, before = [], 0.0
    for index in order:
        layers.append(Layer(num_bytes[index], (ready[index] - before) * scale))
        before = ready[index]
    return tuple(reversed(layers))


def caps_for(calibration: Calibration) -> list[float]:
    """Bucket sizes worth trying, in bytes, from few tensors per bucket to all in one; the largest of each layout."""
    caps = [*(cap * MB for cap in CAPS_MB if cap * MB < calibration.num_bytes), float(max(calibration.num_bytes, 1))]
    return sorted({calibration.layout(cap): cap for cap in caps}.values())


def report(calibration: Calibration, measured: dict[float, list[float]] | None = None) -> Finding:
    """Alpha, beta, compute, contention, and the step time against bucket size, with measured times if there are any."""
    c = calibration
    caps = sorted(measured) if measured else caps_for(c)
    columns: tuple[str, ...] = ("bucket", "calls", "predicted, ms", "exposed, ms")
    rows, errors = [], []
    for cap in caps:
        found = c.timeline(cap)
        row: tuple[Any, ...] = (told(cap), len(found.transfers), f"{c.step_s(cap) * 1e3:.2f}",
                                f"{found.exposed_s * 1e3:.2f}")  # fmt: skip
        if measured:
            seen = statistics.median(measured[cap])
            errors.append(c.step_s(cap) / seen - 1)
            row += (f"{seen * 1e3:.2f}", spread(measured[cap]), f"{errors[-1]:+.0%}")
        rows.append(row)
    notes = [
        f"alpha {c.link.alpha_s * 1e3:.3g} ms, beta {c.link.beta_s_per_byte * 1e9:.3g} ns/B "
        f"for messages of {told(c.curve.num_bytes[0])} to {told(c.curve.num_bytes[-1])}; "
        f"{c.backend}, {c.world_size} ranks on {c.num_cpus} cores",
        f"forward {c.forward_s * 1e3:.2f} ms, backward {c.backward_s * 1e3:.2f} ms, optimizer "
        f"{c.optimizer_s * 1e3:.2f} ms: {c.strategy} without communication, slowest rank, median of {c.num_rounds}",
        f"beside communication backward takes {c.contention.backward:.2f} times as long, and communication "
        f"{c.contention.communication:.2f} times as long beside backward",
    ]
    series = [Series("predicted", tuple(cap / MB for cap in caps), tuple(c.step_s(cap) * 1e3 for cap in caps))]
    facts: dict[str, Any] = {"caps_bytes": caps, "predicted_s": [c.step_s(cap) for cap in caps]}
    if measured:
        columns += ("measured, ms", "quartiles, ms", "error")
        off = statistics.median(abs(error) for error in errors)
        notes.append(f"median error of the prediction over {len(caps)} bucket sizes: {off:.1%}")
        series.append(_measured_series(measured))
        facts |= {"measured_s": [statistics.median(measured[cap]) for cap in caps], "median_error": off}
    chart = Chart("lines", "bucket size, MB", "step, ms", tuple(series), marks=((25.0, "25 MB"),), log_x=True)
    title = f"{c.workload} under {c.strategy} on {c.world_size} ranks: step time against bucket size"
    return Finding(title, columns, tuple(rows), tuple(notes), chart, facts)


def _measured_series(measured: dict[float, list[float]]) -> Series:
    caps = sorted(measured)
    quartiles = [quartiles_of(measured[cap]) for cap in caps]
    return Series(
        "measured (quartiles)",
        tuple(cap / MB for cap in caps),
        tuple(statistics.median(measured[cap]) * 1e3 for cap in caps),
        tuple(low * 1e3 for low, _ in quartiles),
        tuple(high * 1e3 for _, high in quartiles),
    )


def quartiles_of(figures: Sequence[float]) -> tuple[float, float]:
    """The first and the third quartile; with fewer than two figures, the smallest and the largest."""
    if len(figures) < 2:
        return min(figures), max(figures)
    low, _, high = statistics.quantiles(figures, n=4, method="inclusive")
    return low, high


def spread(seconds: Sequence[float]) -> str:
    low, high = quartiles_of(seconds)
    return f"{low * 1e3:.2f} to {high * 1e3:.2f}"
