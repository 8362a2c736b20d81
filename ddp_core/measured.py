"""Turns measurements into the cost model's parameters: a fit of alpha and beta, a curve, contention factors. Pure.

Special here: the fit weighs each size by its own time, so that 1 KB counts as much as 64 MB; ordinary least squares
would fit only the largest messages. Where a backend's times are no straight line (caches, threads, protocols that
change with size), ``Curve`` keeps the measured times and predicts from them.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass

from ddp_core.cost import Contention, Link


def fit_link(num_bytes: Sequence[float], seconds: Sequence[float]) -> Link:
    """Alpha and beta, neither below 0, that minimise the sum of squared *relative* errors.

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
    """Measured times, interpolated linearly. Larger sizes extend the last line, never below 0; smaller ones cost the
    smallest size's time.

    ``num_bytes`` must ascend. Raises ValueError if they do not, or if there are fewer than two.
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
            return y0  # a smaller message costs as much as the smallest measured: its latency
        return max(y0 + (y1 - y0) * (num_bytes - x0) / (x1 - x0), 0.0)


def contention_from(
    backward_alone_s: float, communication_alone_s: float, backward_end_s: float, communication_end_s: float
) -> Contention:
    """How much each slows the other, from a run of both that began together, and the time of each alone.

    The one that ends first ran beside the other all the time; the other's remainder ran alone.

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
    """The slowdown, limited to [1, 8]: noise can leave almost no work to divide by."""
    return min(max(took_s / work_s, 1.0), 8.0) if work_s > 0 else 8.0
