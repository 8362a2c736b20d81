"""How far a weight may be from the single process's after some steps. Pure functions on recordings.

Special here: the bound follows only from the bound on the gradients behind the weight (LS201) and from the update's own
rounding. SGD changes a weight by the learning rate times the gradient's error. AdamW divides by the gradient's own
size, so that rounding a tiny gradient moves a weight by a visible part of the learning rate, and rounding a large one
does not.
"""

from __future__ import annotations

import numpy as np

from verifier.judge.arithmetic import contract_of, is_exact, is_lossy, is_narrow, is_single
from verifier.judge.comparison import UNIT_ROUNDOFF, bound_exact, bound_float64
from verifier.judge.expectation import LOSSY_DRIFT, SINGLE_BOUND, added_to_norms
from verifier.judge.rounding import ULPS, rounded_in
from verifier.recording import Recording, Tensor
from verifier.scenario import ADAMW_EPS, ADAMW_LR, SGD_LR, SGD_MOMENTUM

NARROW_BOUND = 0.25  # of the largest movement: in bfloat16, splitting the batch changes it by a few hundredths
ROUNDINGS = 1e-12  # of float64, in the dozen operations of a step, relative to the largest weight


def weight_bound(recording: Recording, step: int, name: str, expected: Tensor) -> np.ndarray | float:
    """The allowed error of ``name`` after ``step``: one number, or one for each element of ``expected``."""
    scenario = recording.scenario
    assert expected.values is not None
    largest = float(np.abs(expected.values).max(initial=0.0))
    if is_lossy(recording):
        return LOSSY_DRIFT * _moved(recording, step, name, expected.values) + 1e-12
    if is_single(recording):
        roundoff = max(UNIT_ROUNDOFF["float32"], UNIT_ROUNDOFF[expected.dtype])
        moved = _moved(recording, step, name, expected.values)
        return SINGLE_BOUND * moved + 4 * (step + 1) * roundoff * largest  # four roundings of the update per step
    if is_narrow(recording):
        stored = 4 * (step + 1) * UNIT_ROUNDOFF[expected.dtype] * np.abs(expected.values)  # two ulps a step
        return np.asarray(stored + NARROW_BOUND * _moved(recording, step, name, expected.values) + 1e-12)
    if scenario.clip_norm is not None and scenario.optimizer == "sgd":
        longer = added_to_norms(recording, step) * _moved(recording, step, name, expected.values)
        return longer + 1e-10 * max(largest, 1.0) * (step + 1)
    if scenario.optimizer == "adamw":
        return _adamw_bound(recording, step, name, largest)
    if contract_of(recording).get("average") == "sum":
        return 1e-6 * max(largest, 1.0) * scenario.world_size
    if is_exact(recording):
        return _exact_bound(recording, step, name, expected.dtype, largest)
    return 1e-10 * max(largest, 1.0) * (step + 1)


def narrow_noise(recording: Recording, step: int, expected: Tensor) -> float:
    """How far layers of narrower dtypes may have moved a float64 weight beside them, up to ``step``; 0 without any."""
    part = NARROW_BOUND if is_narrow(recording) else SINGLE_BOUND if is_single(recording) else 0.0
    return (
        part * _moved(recording, step, expected.name, expected.values) if part and expected.values is not None else 0.0
    )


def _moved(recording: Recording, step: int, name: str, expected: np.ndarray) -> float:
    """The largest movement of an element from the start, or an estimate from SGD's gradients if the rank does not show
    its initial weights, as when it frees them after a forward.
    """
    assert recording.reference is not None
    start = recording.ranks[0].tensor("weight", -1, name)
    if start is not None and start.values is not None and start.values.shape == expected.shape:
        return float(np.abs(expected - start.values).max(initial=0.0))
    gradients = [recording.reference.tensor("gradient", number, name) for number in range(step + 1)]
    sizes = [float(np.abs(g.values).max(initial=0.0)) if g and g.values is not None else 0.0 for g in gradients]
    return SGD_LR * sum(size * (step + 1 - number) for number, size in enumerate(sizes))


def _adamw_bound(recording: Recording, step: int, name: str, largest: float) -> np.ndarray | float:
    """The sum over steps of 4 lr d / (sqrt(v) + eps), where each gradient may be off by d.

    AdamW moves a weight by lr m / (sqrt(v) + eps), with m a mean of the gradients so far and v a mean of their squares
    (Loshchilov and Hutter, "Decoupled Weight Decay Regularization", algorithm 2). Neither m nor sqrt(v), a norm, is off
    by more than d. |m| is at most 1.1 sqrt(v) in so few steps, so the quotient is off by at most 2.1 d / (sqrt(v) +
    eps). The factor 4 leaves room because v is not the plain mean that it is taken for here.
    """
    assert recording.reference is not None
    bound: np.ndarray | float = ROUNDINGS * max(largest, 1.0) * (step + 1)
    squares: np.ndarray | float = 0.0
    off, used, eps = 0.0, 0, recording.scenario.eps or ADAMW_EPS
    for number in range(step + 1):
        gradient = recording.reference.tensor("gradient", number, name)
        if gradient is None or gradient.values is None:  # AdamW skips it
            continue
        off, used = max(off, bound_float64(gradient.values)), used + 1
        squares = squares + np.abs(gradient.values) ** 2
        bound = bound + 4 * ADAMW_LR * off / (np.sqrt(squares / used) + eps)
    return bound


def _exact_bound(recording: Recording, step: int, name: str, dtype: str, largest: float) -> float:
    """How far rounded gradients may move a weight: each step's bound, accumulated by SGD's momentum, and four roundings
    of the update itself per step. 0 if gradients are exact.
    """
    assert recording.reference is not None
    seen = [recording.reference.tensor(what, s, name) for s in range(step + 1) for what in _gradients(recording)]
    sizes = [float(np.abs(t.values).max(initial=0.0)) for t in seen if t is not None and t.values is not None]
    magnitude = max(sizes, default=0.0)  # without any gradient the parameter was not used
    gradient = bound_exact(magnitude, recording.scenario.world_size, dtype)
    if (rounded := rounded_in(recording)) is not None and rounded <= step:
        gradient = max(gradient, 2 * ULPS * UNIT_ROUNDOFF[dtype] * magnitude)
    if gradient == 0:
        return 0.0
    return (step + 1) * (SGD_LR / (1 - SGD_MOMENTUM) * gradient + 4 * UNIT_ROUNDOFF[dtype] * largest)


def _gradients(recording: Recording) -> list[str]:
    return ["gradient", *(f"local_gradient_{rank}" for rank in range(recording.scenario.world_size))]
