"""Gradients behind a norm over samples (BatchNorm). Pure functions on recordings.

Special here: two values are right. If a norm sees only its rank's samples, the gradient is the mean of the ranks' own,
as usual. If its statistics are synchronised (torch.nn.SyncBatchNorm), it is the gradient of all samples, which is a
different number. Rounding is larger than elsewhere: the gradient of a bias before a norm is only the residue of terms
that cancel, so the bound is relative to the largest gradient of the model.
"""

from __future__ import annotations

import numpy as np

from verifier.judge.arithmetic import contract_of
from verifier.judge.comparison import bound_lossy, compare
from verifier.recording import Recording

BOUND = 1e-4  # of the model's largest gradient; a declared rounding adds to it


def is_right(recording: Recording, step: int, name: str, observed: np.ndarray, mean: np.ndarray) -> bool:
    """Return whether ``observed`` is the ``mean`` of the ranks' own gradients, or the gradient of all samples."""
    assert recording.reference is not None
    times = _times(recording)
    largest, of_all = times * _largest(recording, step), recording.reference.tensor("gradient", step, name)
    lossy = contract_of(recording).get("lossy")
    bound = BOUND * largest + (bound_lossy(largest, recording.scenario.world_size, lossy) if lossy else 0.0)
    if compare(observed, mean, bound).equal:
        return True
    return of_all is not None and of_all.values is not None and compare(observed, of_all.values * times, bound).equal


def _times(recording: Recording) -> int:
    """The factor for the single process's gradients: the world size if the strategy declares sums, else 1."""
    summed = contract_of(recording).get("average") == "sum"
    return recording.scenario.world_size if summed else 1


def _largest(recording: Recording, step: int) -> float:
    assert recording.reference is not None
    kinds = ("gradient", *(f"local_gradient_{rank}" for rank in range(recording.scenario.world_size)))
    found = [tensor.values for kind in kinds for tensor in recording.reference.named(kind, step).values()]
    return max((float(np.abs(values).max(initial=0.0)) for values in found if values is not None), default=0.0)
