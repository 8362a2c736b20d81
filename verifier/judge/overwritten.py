"""Whether the step after a restart put back what the fresh replica was built with, in place of what it had loaded.

Special here: no standard is needed. Copies that an optimizer makes of weights (masters, flat shards) and neither saves
nor makes again are those of the fresh replica, which is built from other random numbers. After a step weights are then
nearer to those than to the loaded ones, by whatever rule they move. A single process of such a rule is overwritten as
well, so comparing with it shows nothing. Pure.
"""

from __future__ import annotations

import numpy as np

from verifier.recording import RankRecording, Recording

FEWEST_ELEMENTS = 8
LONGER = 10  # how many steps' movement lies at least between what was loaded and what the replica was built with
NEARER = 4  # how many times nearer


def overwritten(recording: Recording, last: int) -> list[str]:
    """Return the parameters that are so on all ranks, where the state was saved and loaded after step ``last``."""
    found = []
    for name in recording.parameter_names:
        judged = [verdict for rank in recording.ranks if (verdict := _is_overwritten(rank, last, name)) is not None]
        if judged and all(judged):
            found.append(name)
    return found


def _is_overwritten(rank: RankRecording, last: int, name: str) -> bool | None:
    """None: it cannot be told, because a tensor is missing or small, or both starts are near each other."""
    tensors = [
        rank.tensor(what, step, name)
        for what, step in (("fresh_weight", last), ("weight", last - 1), ("weight", last), ("weight", last + 1))
    ]
    values = [tensor.values for tensor in tensors if tensor is not None and tensor.values is not None]
    if len(values) < len(tensors) or len({held.shape for held in values}) > 1 or values[0].size < FEWEST_ELEMENTS:
        return None
    fresh, before, loaded, after = values
    if not _apart(loaded, fresh) > LONGER * _apart(loaded, before):
        return None
    return _apart(after, fresh) * NEARER < _apart(after, loaded)


def _apart(one: np.ndarray, other: np.ndarray) -> float:
    with np.errstate(invalid="ignore", over="ignore"):
        return float(np.linalg.norm((one - other).astype(np.result_type(one, np.float64))))
