"""What a strategy's own optimizer does to gradients inside its ``step()``. Pure functions on recordings.

Special here: a rule may scale gradients in place (LARC) or consume them (Muon), so that the inner optimizer rightly
finds other gradients than the single process's. Then the gradient before ``step()`` is judged, and its use is judged by
the weights. If nothing compares the weights, the findings are blocked with that reason.
"""

from __future__ import annotations

import numpy as np

from verifier.judge.arithmetic import SINGLE, WIDE
from verifier.judge.comparison import UNIT_ROUNDOFF
from verifier.recording import EARLIER, RankRecording, Recording, Tensor

ROUNDINGS = 4  # 1 / W, the product with it, and as many again: no rule's factor is so near to 1 / W by accident
CHANGED_INSIDE = "step() changes gradients, by a rule of the strategy's own that could not be compared with one rank's"


def before_its_own_step(recording: Recording, rank: RankRecording, step: int, name: str) -> np.ndarray | None:
    """The gradient before ``step()``, if the strategy's own rule changed it inside.

    None if it did not change, or if it was only multiplied or divided by the world size, which is no rule.
    """
    earlier = rank.tensor(EARLIER, step, name)
    if not recording.maybe_own_rule or earlier is None or earlier.values is None:
        return None
    if recording.scenario.world_size == 1 or not (found := _by_ranks(recording, rank, step, earlier)):
        return earlier.values
    if earlier.dtype in (*SINGLE, *WIDE):
        return None
    others = [other for other in rank.named(EARLIER, step).values() if other.dtype not in (*SINGLE, *WIDE)]
    return None if all(found & _by_ranks(recording, rank, step, other) for other in others) else earlier.values


def _by_ranks(recording: Recording, rank: RankRecording, step: int, earlier: Tensor) -> set[str]:
    """The ways in which ``step()`` scaled ``earlier`` by the world size, up to rounding: "divided", "multiplied".

    bfloat16 rounds so coarsely that a rule's own factor may match for one parameter, but not for all.
    """
    after, before = rank.tensors["gradient", step, earlier.name].values, earlier.values
    if after is None or before is None or after.shape != before.shape:
        return set()
    few, times = ROUNDINGS * UNIT_ROUNDOFF.get(earlier.dtype, UNIT_ROUNDOFF["float64"]), recording.scenario.world_size
    ways = {"divided": (after, before), "multiplied": (before, after)}
    return {way for way, (a, b) in ways.items() if np.allclose(a * times, b, rtol=few, atol=0.0)}


def weights_tell(recording: Recording, *, strictly: bool) -> bool:
    """Return whether the weights are judged: here if they are compared ``strictly`` with the single process's, or in
    another scenario if they are compared with one rank's.
    """
    scenario = recording.scenario
    as_asked = strictly and not recording.own_rule and not scenario.tagged
    return recording.derived.compared_alone or as_asked or scenario.world_size == 1
