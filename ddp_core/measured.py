"""From measurements to the cost model's parameters: alpha and beta by a fit, a curve as it is, contention. Pure.

Special here: the fit weighs each size by its own time, so that 1 KB counts as much as 64 MB; ordinary least squares
would see the largest message only. Where a backend is no straight line (caches, threads, protocols that change with
size), ``Curve`` keeps what was measured, and predictions are made from that.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass

from ddp_core.cost import Contention, Link


def fit_link(num_bytes: Sequence[float], seconds: Sequence[float]) -> Link:
    """Alpha and beta that minimise the sum of squared *relative* errors; neither is let under 0.

    Raises ValueError for fewer than two different sizes, or times that are not positive.
    """
    if len(set(num_bytes)) < 2 or len(num_bytes) != len(seconds) or min(seconds, default=0) <= 0:
        raise ValueError(
            f"alpha and beta need positive times of at least two sizes, got {len(set(num_bytes))} sizes "
            f"and {len(seconds)} times"
        )
    weights = [1 / t**2 for t in seconds]
    w, wx, wy = sum(weights), _dot(weights, num_bytes), _dot(weights, seconds)
    wxx = sum(a * x * x for a, x in zip(weights, num_bytes, strict=True))
    wxy = sum(a * x * y for a, x, y in zip(weights, num_bytes, seconds, strict=True))
    beta = (w * wxy - wx * wy) / (w * wxx - wx * wx)
    alpha = (wy - beta * wx) / w
    if beta < 0:
        return Link(wy / w, 0.0)
    return Link(alpha, beta) if alpha >= 0 else Link(0.0, wxy / wxx)


def _dot(a: Sequence[float], b: Sequence[float]) -> float:
    return sum(x * y for x, y in zip(a, b, strict=True))


@dataclass(frozen=True)
class Curve:
    """Measured times, straight lines between them; beyond the ends the nearest line goes on, never under 0.

    ``num_bytes`` ascend. Raises ValueError if they do not, or there are fewer than two.
    """

    num_bytes: tuple[float, ...]
    times_s: tuple[float, ...]

    def __post_init__(self) -> None:
        ascending = all(a < b for a, b in zip(self.num_bytes, self.num_bytes[1:], strict=False))
        if len(self.num_bytes) < 2 or len(self.num_bytes) != len(self.times_s) or not ascending:
            raise ValueError(f"a curve needs at least two sizes in ascending order, got {self.num_bytes}")

    def seconds(self, num_bytes: float) -> float:
        right = min(max(bisect_left(self.num_bytes, num_bytes), 1), len(self.num_bytes) - 1)
        x0, x1 = self.num_bytes[right - 1], self.num_bytes[right]
        y0, y1 = self.times_s[right - 1], self.times_s[right]
        if num_bytes <= x0:
            return y0  # what is smaller than the smallest costs as much: latency
        return max(y0 + (y1 - y0) * (num_bytes - x0) / (x1 - x0), 0.0)


def contention_from(
    backward_alone_s: float, communication_alone_s: float, backward_end_s: float, communication_end_s: float
) -> Contention:
    """How much each slows the other, from a run of both that began together, and the time of each alone.

    Whichever ends first was beside the other all the time; the rest of the other one ran alone.

    Raises ValueError if a time alone is not positive.
    """
    b, c = backward_alone_s, communication_alone_s
    if min(b, c) <= 0:
        raise ValueError(f"times alone must be positive, got {b} s of backward and {c} s of communication")
    beside = min(backward_end_s, communication_end_s)
    backward_done = b - max(backward_end_s - beside, 0.0)
    communication_done = c - max(communication_end_s - beside, 0.0)
    return Contention(_factor(beside, backward_done), _factor(beside, communication_done))


def _factor(took_s: float, work_s: float) -> float:
    """At least 1; at most 8, where noise has left next to no work to divide by."""
    return min(max(took_s / work_s, 1.0), 8.0) if work_s > 0 else 8.0
