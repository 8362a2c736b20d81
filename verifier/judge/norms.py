"""Gradients behind a norm over samples (BatchNorm). Pure functions on recordings.

Special here: two values are right. If a norm sees only its rank's samples, the gradient is the mean of the ranks' own,
as usual. If its statistics are synchronised (torch.nn.SyncBatchNorm), it is the gradient of all samples, which is a
different number. Gradients in front of a norm are neither, and those behind it the second, if a strategy synchronises
statistics in the forward and forgets that they depend on all samples in the backward. Rounding is larger than
elsewhere: the gradient of a bias before a norm is only the residue of terms that cancel, so the bound is relative to
the largest gradient of the model.
"""

from __future__ import annotations

import numpy as np

from verifier.judge.arithmetic import contract_of, has_norms
from verifier.judge.comparison import bound_lossy, compare
from verifier.judge.inquiry import local_gradients
from verifier.recording import Recording
from verifier.verdict import Failure

EXPLAINS = "LS201"  # failures of this check: `causes` reads it here
BOUND = 1e-4  # of the model's largest gradient; a declared rounding adds to it


def is_right(recording: Recording, step: int, name: str, observed: np.ndarray, mean: np.ndarray) -> bool:
    """Return whether ``observed`` is the ``mean`` of the ranks' own gradients, or the gradient of all samples."""
    return compare(observed, mean, _bound(recording, step)).equal or _is_of_all(recording, step, name, observed)


def temper(recording: Recording, step: int, failures: list[Failure]) -> None:
    """Name in place the cause of unexplained ``failures`` if some parameter behind all of theirs has the gradient of
    all samples: a norm is synchronised between them and it, forward and not backward.
    """
    if not has_norms(recording) or any(failure.cause for failure in failures):
        return
    wrong = {failure.parameter for failure in failures}
    names = recording.parameter_names  # in the order in which a forward meets them
    of_all = [place for place, name in enumerate(names) if _is_of_all_alone(recording, step, name)]
    if not of_all or any(names.index(name) > of_all[0] for name in names if name in wrong):
        return
    for failure in failures:
        failure.cause, failure.confidence = "statistics_held_constant", 0.85
        failure.explanation = (
            "gradients behind a norm are those of all ranks' samples, so its statistics are synchronised; this one, in "
            "front of the norm, is not: the backward takes the other ranks' share in the statistics for a constant"
        )
        failure.hint = (
            "reduce in the backward what was reduced in the forward: an autograd function, "
            "torch.distributed.nn.functional.all_reduce(), or torch.nn.SyncBatchNorm"
        )


def _is_of_all_alone(recording: Recording, step: int, name: str) -> bool:
    """Return whether every rank holds the gradient of all samples, and it is not the mean of the ranks' own."""
    own = [*local_gradients(recording, step, name).values()]
    if len(own) < recording.scenario.world_size:
        return False
    mean = np.mean(own, axis=0) * _times(recording)
    held = [rank.tensor("gradient", step, name) for rank in recording.ranks]
    values = [tensor.values for tensor in held if tensor is not None and tensor.values is not None]
    if len(values) < len(held) or any(compare(each, mean, _bound(recording, step)).equal for each in values):
        return False
    return all(_is_of_all(recording, step, name, each) for each in values)


def _is_of_all(recording: Recording, step: int, name: str, observed: np.ndarray) -> bool:
    assert recording.reference is not None
    of_all = recording.reference.tensor("gradient", step, name)
    if of_all is None or of_all.values is None:
        return False
    return compare(observed, of_all.values * _times(recording), _bound(recording, step)).equal


def _bound(recording: Recording, step: int) -> float:
    largest = _times(recording) * _largest(recording, step)
    lossy = contract_of(recording).get("lossy")
    return BOUND * largest + (bound_lossy(largest, recording.scenario.world_size, lossy) if lossy else 0.0)


def _times(recording: Recording) -> int:
    """The factor for the single process's gradients: the world size if the strategy declares sums, else 1."""
    summed = contract_of(recording).get("average") == "sum"
    return recording.scenario.world_size if summed else 1


def _largest(recording: Recording, step: int) -> float:
    assert recording.reference is not None
    kinds = ("gradient", *(f"local_gradient_{rank}" for rank in range(recording.scenario.world_size)))
    found = [tensor.values for kind in kinds for tensor in recording.reference.named(kind, step).values()]
    return max((float(np.abs(values).max(initial=0.0)) for values in found if values is not None), default=0.0)
