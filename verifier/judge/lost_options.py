"""Whether AdamW's betas or eps were lost, and torch's defaults used instead. A pure function on recordings.

Special here: the steps are computed again from the single process's gradients and the replica's initial weights, so the
lost option is found and not guessed. Loshchilov and Hutter, "Decoupled Weight Decay Regularization", algorithm 2.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from verifier.recording import Recording
from verifier.scenario import ADAMW_BETAS, ADAMW_DECAY, ADAMW_EPS

ROUNDINGS = 1e-9  # relative to the weights' movement; a lost option changes it by thousandths


def lost_options(recording: Recording, step: int, name: str, after: np.ndarray | None) -> str | None:
    """The lost options, if AdamW with torch's defaults in their place reaches ``after`` in ``step``; else None."""
    scenario = recording.scenario
    if scenario.optimizer != "adamw" or scenario.groups or scenario.clip_norm is not None or scenario.weight_decay:
        return None
    found = _history(recording, step, name)
    if after is None or found is None or after.shape != found[0].shape:
        return None
    betas, eps = scenario.betas or ADAMW_BETAS, scenario.eps or ADAMW_EPS
    ways = {"eps": (betas, ADAMW_EPS), "betas": (ADAMW_BETAS, eps), "betas and eps": (ADAMW_BETAS, ADAMW_EPS)}
    for lost, way in ways.items():
        if way != (betas, eps) and _comes_to(after, *found, *way, lr=scenario.lr):
            return lost
    return None


def _history(recording: Recording, step: int, name: str) -> tuple[np.ndarray, list[np.ndarray]] | None:
    """The initial weights and the gradients since; None if one of them is not known whole."""
    assert recording.reference is not None
    tensors = [recording.ranks[0].tensor("weight", -1, name)]
    tensors += [recording.reference.tensor("gradient", number, name) for number in range(step + 1)]
    values = [None if tensor is None else tensor.values for tensor in tensors]
    known = [value for value in values if value is not None]
    if len(known) < len(values) or any(value.shape != known[0].shape for value in known):
        return None
    return known[0], known[1:]


def _comes_to(
    after: np.ndarray,
    start: np.ndarray,
    gradients: Sequence[np.ndarray],
    betas: tuple[float, float],
    eps: float,
    *,
    lr: float,
) -> bool:
    weight, mean, square = start, np.zeros_like(start), np.zeros_like(start)
    for number, gradient in enumerate(gradients, 1):
        mean = betas[0] * mean + (1 - betas[0]) * gradient
        square = betas[1] * square + (1 - betas[1]) * gradient**2
        spread = np.sqrt(square / (1 - betas[1] ** number)) + eps
        weight = weight * (1 - lr * ADAMW_DECAY) - lr * mean / (1 - betas[0] ** number) / spread
    return bool((np.abs(weight - after) <= ROUNDINGS * np.abs(after - start).max(initial=0.0)).all())
