"""The performance lab as one form: a job, a network, and four charts of the cost model's predictions.

Special here: nothing is measured or run; it shows ``lockstep simulate``. A drawing is made once for the same input
(matplotlib takes some 100 ms), and only one at a time; the number of layers is limited to keep that time short.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from functools import lru_cache
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field

from ddp_core.cost import Contention, Layer, Link, sizes_between
from ddp_core.scaling import ALGORITHMS, Job, Network
from verifier.errors import UsageError
from verifier.lab import growth, plots, quantities, simulations
from verifier.lab.finding import Finding

MOST_LAYERS = 2000
NUM_SIZES = 40
Chart = Literal["timeline", "sweep", "strategies", "scaling"]
Milliseconds = Annotated[float, Field(ge=0, le=1e6)]


class LabQuery(BaseModel):
    """A job and the networks under it. The defaults are the published example and what ``simulate scaling`` assumes."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    layers: str = Field(quantities.PUBLISHED_STACK, max_length=500, title="layers, millions of parameters, first first")
    bytes_each: Literal["4", "2"] = Field("4", title="bytes of a gradient")
    backward_ms: float = Field(quantities.PUBLISHED_BACKWARD_MS, gt=0, le=1e6, title="backward, ms")
    forward_ms: Milliseconds = Field(45.0, title="forward, ms")
    bucket: str = Field("25MB", max_length=30, title="bucket (25MB, or 4M parameters)")
    micro_batches: int = Field(1, ge=1, le=65536, title="micro-batches a step")
    alpha_ms: Milliseconds = Field(1.4, title="an all-reduce's latency, ms")
    beta_ns: float = Field(0.2375, ge=0, le=1e6, title="and ns a byte")
    ranks_per_node: int = Field(8, ge=1, le=1024, title="ranks a node")
    near_gb: float = Field(150.0, gt=1e-6, le=1e6, title="GB/s inside a node")
    far_gb: float = Field(25.0, gt=1e-6, le=1e6, title="GB/s a rank between nodes")
    largest: int = Field(4096, ge=2, le=1_000_000, title="up to so many ranks")


def answer(chart: Chart, query: LabQuery) -> Finding:
    """The cost model's answer. Raises UsageError for invalid layers or bucket size."""
    bytes_each = int(query.bytes_each)
    layers = quantities.stack(query.layers, query.backward_ms, bytes_each)
    if len(layers) > MOST_LAYERS:
        raise UsageError(f"'{query.layers}' has {len(layers):,} layers; a page takes {MOST_LAYERS:,} at most.")
    cap = quantities.parse_size(query.bucket, bytes_each)
    answers: dict[Chart, Callable[[list[Layer], float, LabQuery], Finding]] = {
        "timeline": _timeline, "sweep": _sweep, "strategies": _strategies, "scaling": _scaling
    }  # fmt: skip
    return answers[chart](layers, cap, query)


def _link(query: LabQuery) -> Link:
    return Link(query.alpha_ms / 1e3, query.beta_ns / 1e9)


def _timeline(layers: list[Layer], cap: float, query: LabQuery) -> Finding:
    return simulations.timeline(layers, cap, _link(query), Contention(), "until_full")


def _sweep(layers: list[Layer], cap: float, query: LabQuery) -> Finding:
    total = sum(layer.num_bytes for layer in layers)
    sizes = sorted({cap, *sizes_between(total / 250, total, NUM_SIZES)})
    return simulations.sweeps(layers, [_link(query)], sizes, Contention(), "until_full")


def _strategies(layers: list[Layer], cap: float, query: LabQuery) -> Finding:
    return simulations.strategies(layers, cap, _link(query), Contention(), "until_full")


def _scaling(layers: list[Layer], cap: float, query: LabQuery) -> Finding:
    job = Job(tuple(layers), query.forward_ms / 1e3, cap_bytes=cap)
    near, far = Link(5e-6, 1e-9 / query.near_gb), Link(15e-6, 1e-9 / query.far_gb)
    network = Network(near, far, query.ranks_per_node)
    return growth.scaling_curve(job, network, query.largest, ALGORITHMS, query.micro_batches)


_one_at_a_time = threading.Lock()  # matplotlib's fonts and caches are shared by the process


@lru_cache(maxsize=64)
def drawing(chart: Chart, query: LabQuery) -> str:
    """The chart as SVG. Raises UsageError as ``answer`` does, and if matplotlib is missing."""
    with _one_at_a_time:
        return plots.svg(answer(chart, query))
