"""Whether a gradient was sent as signs, or as small integers times a scale: all elements are multiples of one step.

Special here: the scale need not be known. The range covered is from signs, as in Seide et al., "1-Bit Stochastic
Gradient Descent" (2014), to eight bits per rank, as in Alistarh et al., "QSGD" (2017).
"""

from __future__ import annotations

import numpy as np

from verifier.judge.evidence import Cause, GradientEvidence, is_one_row

EXPLAINS = "LS201"  # failures of this check: `causes` reads it here
FEWEST_ELEMENTS = 16  # more than in other patterns: any few numbers are multiples of something
MOST_LEVELS = 127  # on either side of zero, for each rank in the sum
FEW_LEVELS = 3  # so few that exact arithmetic does not give them by itself
MANY_MORE = 4  # times as many sizes in the right gradient as in the observed one
NEAR, FAR = 1e-3, 0.05  # of a step, from the nearest whole multiple


def on_a_grid(e: GradientEvidence) -> Cause | None:
    """The cause if every element is a whole multiple of a step and the right gradient's are not, or if it has as few
    sizes as sums of one plus, minus or zero per rank, and the right gradient has many.
    """
    if e.observed.dtype.kind != "f" or e.observed.size < FEWEST_ELEMENTS or not np.isfinite(e.observed).all():
        return None
    if is_one_row(e.observed) or not ((e.observed > 0).any() and (e.observed < 0).any()):  # signs need both
        return None
    seen = _multiples(e) or _few_sizes(e)
    if seen is None:
        return None
    return Cause(
        "quantised",
        0.8,
        f"{seen}: what was sent is signs, or small whole numbers times a scale",
        "send gradients in a dtype that holds them; or keep what is lost, add it in the next step, and declare the "
        "loss: Contract(lossy=...)",
    )


def _multiples(e: GradientEvidence) -> str | None:
    step = _step(np.abs(e.observed.astype(np.float64)))
    if step is None:
        return None
    levels, wanted = np.abs(e.observed) / step, np.abs(e.expected) / step
    most = levels.max().round()  # infinite if the step is a tiny denormal number
    if most > MOST_LEVELS * e.world_size or _off(levels).max() > NEAR or _off(wanted).max() < FAR:
        return None
    if most > FEW_LEVELS * e.world_size and _is_on_a_grid(np.abs(e.expected.astype(np.float64))):
        return None
    told = f"every element is a whole multiple of {step:.4g}, {most:.0f} times that at most"
    return told + ", and the right gradient's are not"


def _is_on_a_grid(sizes: np.ndarray) -> bool:
    """Return whether these are multiples of some step, as in exact arithmetic, where wrong numbers are as well."""
    step = _step(sizes)
    return step is not None and _off(sizes / step).max() < NEAR


def _few_sizes(e: GradientEvidence) -> str | None:
    observed, expected = (len(_sizes(gradient)) for gradient in (e.observed, e.expected))
    if not 0 < observed <= 3**e.world_size // 2 or expected < MANY_MORE * observed:
        return None
    return f"its elements have no more than {observed} sizes but zero, and the right gradient's have {expected}"


def _sizes(gradient: np.ndarray) -> np.ndarray:
    """The distinct magnitudes of non-zero elements, up to rounding."""
    sizes = np.unique(np.abs(gradient.astype(np.float64)))
    near = 1e-6 * sizes.max(initial=0.0)
    return sizes[np.diff(sizes, prepend=0.0) > near]


def _step(sizes: np.ndarray) -> float | None:
    """The smallest distance between two numbers of ``sizes`` and zero that exceeds rounding; None if there is none."""
    distances = np.diff(np.unique(np.append(sizes, 0.0)))
    steps = distances[distances > NEAR * sizes.max(initial=0.0) / MOST_LEVELS]
    return float(steps.min()) if len(steps) else None


def _off(levels: np.ndarray) -> np.ndarray:
    """The distance of each level from the nearest whole number."""
    off: np.ndarray = np.abs(levels - np.round(levels))
    return off
