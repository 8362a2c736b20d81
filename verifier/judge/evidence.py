"""A wrong gradient with what is known around it, and the cause that a pattern may find in it.

Special here: two arrays are close only if they differ by no more than rounding. A pattern fits or does not; nothing is
scored.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np

FEWEST_ELEMENTS = 8  # that a pattern has to fit: fewer may fit by chance
ROUNDINGS = {"float32": 1e-5, "complex64": 1e-5, "float16": 1e-2}  # by dtype, relative to the largest element
FINEST = 1e-9  # the same for other dtypes, such as float64
CONDITION = 1e3  # the largest condition number of a fit's normalised columns: beyond it they are nearly multiples
# No cause, or one that says what the numbers look like and not why: the strategy's own rule may have made them.
UNEXPLAINED = (None, "elements_left_out", "gradient_cleared", "low_rank", "quantised")


@dataclass(frozen=True)
class Cause:
    name: str
    confidence: float
    explanation: str
    hint: str


@dataclass(frozen=True)
class GradientEvidence:
    """A wrong gradient and what is known around it. Arrays have the parameter's shape."""

    observed: np.ndarray
    expected: np.ndarray
    world_size: int
    num_micro_batches: int
    poisoned: bool
    rank: int
    local: Mapping[int, np.ndarray]  # each rank's own gradient before synchronisation, where known
    written_in_flight: bool = False  # some tensor of this step was written to while its collective was in flight
    on_gpu: bool = False
    clipped: bool = False  # the gradient was clipped before it was recorded
    first: Mapping[int, np.ndarray] = field(default_factory=dict)  # the share of each rank's first micro-batch in it
    last: Mapping[int, np.ndarray] = field(default_factory=dict)  # the share of each rank's last micro-batch
    previous: np.ndarray | None = None  # the gradient that this rank's optimizer saw in the step before
    dropped: bool = False  # the same samples came before this step, and that gradient was to be thrown away
    weight: np.ndarray | None = None  # the parameter before this step
    neighbours: Mapping[str, Mapping[int, np.ndarray]] = field(default_factory=dict)  # ``local`` of others of its shape
    held: Mapping[int, np.ndarray] = field(default_factory=dict)  # each rank's gradient, where ``local`` is not known
    agreed: bool = False  # every rank holds the same bits: whatever was done, all ranks did it
    contains: str | None = None  # tagged gradients: what was added up, as decoded from the payloads
    inputs: Mapping[int, str] = field(default_factory=dict)  # whose inputs a rank's model got, if not its own
    passed_by: bool = False  # in the first forward the model was not called, on any rank
    reduced_to: int | None = None  # the one other rank that all of this rank's collectives after the forward reduce to
    untied: str | None = None  # the other name of this parameter in the bare model, where wrapping made it another one
    elsewhere: str | None = None  # tagged gradients: another element's right mean that stands in place of its own


def is_one_row(a: np.ndarray) -> bool:
    """Return whether all rows are equal, as after a sum over the wrong dimension, which leaves few distinct numbers."""
    return len(a) > 1 and bool((a == a[:1]).all())


def close(a: np.ndarray, b: np.ndarray) -> bool:
    """Return whether ``a`` equals ``b`` up to rounding in the dtype of ``a``. A ``b`` of zeros is no evidence."""
    if a.shape != b.shape or not b.any():
        return False
    relative = ROUNDINGS.get(str(a.dtype), FINEST)
    scale = float(np.abs(b).max())
    return bool(np.all(np.isfinite(a)) and np.all(np.abs(a - b) <= relative * scale))
