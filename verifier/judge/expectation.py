"""The expected gradient: the single process's value, and how far from it a correct strategy may be.

Special here: the source of the expected value. In exact arithmetic and in float64 it is the single process's gradient
of the large batch. In float32, bfloat16 and complex64 a matrix product of another size rounds differently, which would
blur it. There it is the mean of the ranks' own gradients, which the single process computed on the same micro-batches.
The remaining error is the rounding of W terms and their mean, per element, and of rows added up in another order. The
ranks' own gradients are known for the first step; later, float32 is compared with the large batch, to a thousandth.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from verifier.judge.arithmetic import (
    SINGLE,
    WIDE,
    contract_of,
    dtypes,
    has_norms,
    is_exact,
    is_single,
    is_wide,
    keeps_float64,
)
from verifier.judge.comparison import (
    UNIT_ROUNDOFF,
    bound_exact,
    bound_float64,
    bound_lossy,
    bound_of_mean,
    largest_element,
    reciprocal_is_exact,
    widened,
)
from verifier.judge.inquiry import local_gradients
from verifier.lines import TURNED
from verifier.recording import Recording, Tensor

ROUNDINGS = 16  # ulps of the largest element: what another order of a few hundred additions may change
SINGLE_BOUND = 1e-3  # of a tensor's largest element: rounding reaches 1e-5 in a few steps, mistakes their own size
# Times the error measured for a few other orders, where a layer or autocast rounds products to bfloat16. The worst
# correct strategy tried, which has the rows of all ranks in one batch, reached 1.4 times that error.
ORDERS = 4
ADDED_TO_NORM = 1e-6  # by torch, before it divides
NORM_ROUNDINGS = 16  # ulps of the coarsest dtype: a norm may be computed per tensor, each in its own dtype
LOSSY_DRIFT = 0.25  # of the largest element: a generous limit on declared rounding over a few steps


@dataclass(frozen=True)
class Expected:
    """The gradient that a single process has, and how far from it a correct strategy may be (absolute)."""

    values: np.ndarray
    bound: np.ndarray | float


def expect(recording: Recording, step: int, name: str, reference: Tensor) -> Expected | None:
    """The expected gradient of ``name`` on a rank; None where no bound is known (bfloat16 after the first step)."""
    assert reference.values is not None
    world_size = recording.scenario.world_size
    scale = world_size if contract_of(recording).get("average") == "sum" else 1
    values: np.ndarray = reference.values if scale == 1 else reference.values * scale
    bound: np.ndarray | float
    if is_exact(recording):
        bound = 0.0
        if not reciprocal_is_exact(world_size, reference.dtype):
            largest = max(_magnitude(recording, step, name).max(initial=0.0), np.abs(reference.values).max(initial=0.0))
            bound = bound_exact(float(largest) * scale, world_size, reference.dtype)
    elif is_wide(recording):
        bound = bound_float64(values) + added_to_norms(recording, step) * largest_element(values)
    elif step > 0 and is_single(recording):
        bound = SINGLE_BOUND * largest_element(values)
    else:
        made = _mean_of_ranks(recording, step, name, reference, scale)
        if made is None:
            return None
        values, bound = made.values, made.bound
    if lossy := contract_of(recording).get("lossy"):
        largest = float(_magnitude(recording, step, name).max(initial=0.0)) * scale
        if recording.scenario.clip_norm is not None:  # rounding changes the gradient and the norm that clips it
            largest *= 2 * _clipped_by(recording, step, name, values)
        bound = bound + bound_lossy(largest, world_size, lossy)
        if step > 0:  # rounding has moved the weights since the start; a mistake changes them more
            bound = bound + LOSSY_DRIFT * largest_element(values)
            bound = bound + bound_lossy(_largest_before(recording, step, name) * scale, world_size, lossy)
    return Expected(values, bound)


def _mean_of_ranks(recording: Recording, step: int, name: str, reference: Tensor, scale: int) -> Expected | None:
    """The mean of the ranks' own gradients, clipped like all; None if they are unknown, or if a sum is clipped."""
    local, world_size = list(local_gradients(recording, step, name).values()), recording.scenario.world_size
    limit = recording.scenario.max_norm(step)
    if len(local) < world_size or (limit is not None and scale != 1):
        return None
    norm = 0.0 if limit is None else _norm_of_means(recording, step)
    shorter = min(limit / norm, 1.0) if limit is not None and norm else 1.0
    values = np.mean([widened(gradient) for gradient in local], axis=0) * scale * shorter
    bound = bound_of_mean(_magnitude(recording, step, name) * scale * shorter, world_size, reference.dtype)
    bound = bound + _order_of_rows(recording, reference, values, scale, shorter)
    if norm:
        coarsest = max(UNIT_ROUNDOFF[dtype] for dtype in dtypes(recording))
        bound = bound + (NORM_ROUNDINGS * coarsest + ADDED_TO_NORM / norm) * np.abs(values)
    return Expected(values, bound)


def _norm_of_means(recording: Recording, step: int) -> float:
    """The norm of all gradients together, before clipping."""
    local = [local_gradients(recording, step, name).values() for name in recording.parameter_names]
    means = [np.mean([widened(gradient) for gradient in each], axis=0) for each in local if each]
    return _norm(means, recording.scenario.norm_type)


def _order_of_rows(
    recording: Recording, reference: Tensor, mean: np.ndarray, scale: int, shorter: float = 1.0
) -> float:
    """The error that another order of adding up rows may cause: a rank need not process its rows in order.

    It is measured: the large batch's gradient was added up in another order than the mean of the ranks' own, and so was
    the gradient of each rank's rows reversed. The minimum is a few ulps of the largest element, in float64 for a
    float64 parameter and else in float32. That holds beside float32 layers as well: the measurement has their noise.
    """
    if has_norms(recording):
        return 0.0
    assert reference.values is not None
    largest = float(np.abs(mean).max(initial=0.0))
    off = float(np.abs(reference.values * scale - mean).max(initial=0.0))
    off = off if np.isfinite(off) else 0.0
    alone, ranks = recording.reference, range(recording.scenario.world_size)
    assert alone is not None
    turned = [alone.tensor(f"{TURNED}_{rank}", 0, reference.name) for rank in ranks]
    known = [
        float(tensor.values) * scale * shorter for tensor in turned if tensor is not None and tensor.values is not None
    ]
    times = ORDERS if recording.scenario.autocast or not dtypes(recording) <= {*SINGLE, *WIDE} else 1
    unit = UNIT_ROUNDOFF["float64" if keeps_float64(recording, reference.dtype) else "float32"]
    return times * max(off, *known, 0.0) + ROUNDINGS * unit * largest


def added_to_norms(recording: Recording, step: int) -> float:
    """The relative amount by which clipped gradients may be longer than the single process's, up to ``step``.

    torch adds 1e-6 to the norm that it divides by; other implementations do not. The effect is measured on the single
    process: its clipped gradients are shorter than the limit by that amount. Without clipping it is 0.
    """
    assert recording.reference is not None
    part = 0.0
    for number in range(step + 1):
        limit = recording.scenario.max_norm(number)
        if limit is None or number in recording.scenario.loose_clip_in:
            continue
        gradients = [tensor.values for tensor in recording.reference.named("gradient", number).values()]
        norm = _norm([g for g in gradients if g is not None], recording.scenario.norm_type)
        part += max(limit / norm - 1, 0.0) if norm else 0.0
    return part


def _norm(gradients: list[np.ndarray], norm_type: float) -> float:
    """The norm of all ``gradients`` together, as in ``clip_grad_norm_``: the 2-norm, or the largest element."""
    if math.isinf(norm_type):
        return max((float(np.abs(g).max(initial=0.0)) for g in gradients), default=0.0)
    return math.sqrt(sum(float((np.abs(g) ** 2).sum()) for g in gradients))


def _clipped_by(recording: Recording, step: int, name: str, clipped: np.ndarray) -> float:
    """The factor, at most 1, by which clipping scaled this gradient in the single process."""
    local = list(local_gradients(recording, step, name).values())
    before = float(np.linalg.norm(np.mean(local, axis=0))) if local else 0.0
    return min(float(np.linalg.norm(clipped)) / before, 1.0) if before else 1.0


def _largest_before(recording: Recording, step: int, name: str) -> float:
    """The largest element that ``name``'s gradient had in an earlier step, of ranks' own ones where those are known.

    With error feedback, a rounding of that is sent later, also where the gradient has become 0 (Seide et al., "1-bit
    stochastic gradient descent", 2014).
    """
    assert recording.reference is not None
    held = (recording.reference.tensor("gradient", earlier, name) for earlier in range(step))
    largest = [largest_element(tensor.values) for tensor in held if tensor is not None and tensor.values is not None]
    return max([*largest, float(_magnitude(recording, 0, name).max(initial=0.0))])


def _magnitude(recording: Recording, step: int, name: str) -> np.ndarray:
    """The mean over ranks of the absolute local gradients, per element."""
    local = [np.abs(g).astype(np.float64) for g in local_gradients(recording, step, name).values()]
    return np.sum(local, axis=0) / recording.scenario.world_size if local else np.zeros(())
