"""What an optimizer of a strategy's own does to gradients inside its ``step()``. Pure functions on recordings.

Special here: a rule may scale gradients in place (LARC), or use them up (Muon), so that what the optimizer inside finds
is not the single process's, and rightly. Then the gradient before ``step()`` is judged, and what became of it is left
to the weights; where nothing looks at those, that is said.
"""

from __future__ import annotations

import numpy as np

from verifier.judge.comparison import UNIT_ROUNDOFF
from verifier.recording import EARLIER, RankRecording, Recording

ROUNDINGS = 4  # 1 / W, the product with it, and as many again: a rule's own factor is that near to 1 / W by no accident
SHOWN_ALONE = "shown_alone"  # a note that judging makes: in some scenario, one rank shows where the own rule leads
CHANGED_INSIDE = "step() changes gradients, by a rule of the strategy's own that could not be compared with one rank's"


def before_its_own_step(recording: Recording, rank: RankRecording, step: int, name: str) -> np.ndarray | None:
    """The gradient before ``step()``, if a rule of the strategy's own has changed it in there.

    None: nothing has, or it was multiplied or divided by the number of ranks, which is no rule.
    """
    notes, earlier = recording.ranks[0].notes, rank.tensor(EARLIER, step, name)
    if {"own_optimizer", "own_rule"}.isdisjoint(notes) or earlier is None or earlier.values is None:
        return None
    before, after, times = earlier.values, rank.tensors["gradient", step, name].values, recording.scenario.world_size
    if after is None or after.shape != before.shape or times == 1:
        return before
    few = ROUNDINGS * UNIT_ROUNDOFF.get(earlier.dtype, UNIT_ROUNDOFF["float64"])
    by_ranks = (np.allclose(a * times, b, rtol=few, atol=0.0) for a, b in ((after, before), (before, after)))
    return None if any(by_ranks) else before


def weights_tell(recording: Recording, *, strictly: bool) -> bool:
    """Do weights show what became of gradients? Here, if they are held ``strictly`` to the single process's, or in
    another scenario to one rank's.
    """
    notes, scenario = recording.ranks[0].notes, recording.scenario
    as_asked = strictly and "own_optimizer" not in notes and not scenario.tagged
    return bool(notes.get(SHOWN_ALONE)) or as_asked or scenario.world_size == 1
