"""Gradients behind a norm over samples (BatchNorm). Pure functions on recordings.

Special here: two answers are right. A norm that sees its rank's samples alone has for its gradient the mean of the
ranks' own, as all gradients do; one whose statistics are synchronised (torch.nn.SyncBatchNorm) has that of all samples,
which is another number. Roundings are larger than elsewhere: the bias before a norm has no gradient but what is left
of terms that cancel, so the bound is relative to the largest gradient of the model.
"""

from __future__ import annotations

import numpy as np

from verifier.judge.comparison import bound_lossy, compare
from verifier.recording import Recording

BOUND = 1e-4  # of the model's largest gradient; and what a declared rounding may come to there


def is_right(recording: Recording, step: int, name: str, observed: np.ndarray, mean: np.ndarray) -> bool:
    """Is ``observed`` the ``mean`` of the ranks' own gradients of ``name``, or the gradient of all their samples?"""
    assert recording.reference is not None
    times = _times(recording)
    largest, of_all = times * _largest(recording, step), recording.reference.tensor("gradient", step, name)
    lossy = recording.ranks[0].notes.get("contract", {}).get("lossy")
    bound = BOUND * largest + (bound_lossy(largest, recording.scenario.world_size, lossy) if lossy else 0.0)
    if compare(observed, mean, bound).equal:
        return True
    return of_all is not None and of_all.values is not None and compare(observed, of_all.values * times, bound).equal


def _times(recording: Recording) -> int:
    """What gradients of one process are multiplied by in a strategy that declares sums."""
    summed = recording.ranks[0].notes.get("contract", {}).get("average") == "sum"
    return recording.scenario.world_size if summed else 1


def _largest(recording: Recording, step: int) -> float:
    assert recording.reference is not None
    kinds = ("gradient", *(f"local_gradient_{rank}" for rank in range(recording.scenario.world_size)))
    found = [tensor.values for kind in kinds for tensor in recording.reference.named(kind, step).values()]
    return max((float(np.abs(values).max(initial=0.0)) for values in found if values is not None), default=0.0)
