"""A tensor whose gradient is nothing but rounding, under a rule that scales gradients by their norm (LARS, LAMB).

Such a rule takes a whole step in whatever direction the roundings point. Ranks add up in another order than one process
does, so they go elsewhere, and all that follows starts elsewhere. Special here: single elements of such a step lie
outside of the range that nudged runs span, since a nudge points into one direction of many. But these runs are as far
apart as the step's sphere is wide, and no error is larger than that. A pure function on recordings.
"""

from __future__ import annotations

import numpy as np

from verifier.recording import Recording


def decided_by_rounding(recording: Recording, step: int, name: str, observed: np.ndarray, wanted: np.ndarray) -> bool:
    """Return whether ``observed`` weights differ from one rank's, ``wanted``, by no more than roundings move them.

    The gradient of ``name`` on one rank is then below what the nudged runs added to it. Where no gradient is shown, the
    nudged runs have to be further apart than the whole step went.
    """
    held = [nudged.ranks[0].tensor("weight", step, name) for nudged in recording.nudged if nudged.ranks[0].completed]
    nudged = [tensor.values for tensor in held if tensor is not None and tensor.values is not None]
    if recording.alone is None or len(nudged) < 2 or any(values.shape != observed.shape for values in nudged):
        return False
    alone = recording.alone.ranks[0]
    apart = np.linalg.norm((nudged[0] - nudged[1]).ravel())
    gradient, before = alone.tensor("gradient", step, name), alone.tensor("weight", step - 1, name)
    if gradient is not None and gradient.values is not None:
        largest = max(abs(one.scenario.nudge) for one in recording.nudged) * recording.alone.scenario.loss_times
        is_rounding = bool((np.abs(gradient.values) <= largest).all())
    else:
        is_rounding = bool(
            before is not None and before.values is not None and apart >= _norm_of_step(wanted, before.values)
        )
    return is_rounding and bool(np.linalg.norm((observed - wanted).ravel()) <= apart)


def _norm_of_step(after: np.ndarray, before: np.ndarray) -> float:
    return float(np.linalg.norm((after - before).ravel())) if after.shape == before.shape else float("inf")
