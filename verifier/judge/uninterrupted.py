"""Whether a saved and resumed training run is wrong without the restart as well: then the restart is not the cause.

Special here: a control experiment, where the run has one: the same scenario without the restart, with other numbers.
Otherwise a mistake that begins in a later step would be attributed to the restart before it. Pure.
"""

from __future__ import annotations

from collections.abc import Sequence

from verifier.judge.arithmetic import own_steps
from verifier.judge.equivalence import blocked_reference
from verifier.judge.out_of_sight import compare_gradients
from verifier.judge.updates import compare_weights, not_judged
from verifier.recording import Recording, derive
from verifier.scenario import Scenario

OTHERWISE = {"name", "situation", "seed", "delay_ms", "needs", "judged_by", "resume_after", "built_first", "timeout_s"}


def held_to_controls(recordings: Sequence[Recording]) -> list[Recording]:
    """``recordings``, each of a resumed run with the name of a wrong scenario that is the same without the restart."""
    return [derive(one, wrong_without_restart=_wrong_without(one, recordings)) for one in recordings]


def _wrong_without(resumed: Recording, recordings: Sequence[Recording]) -> str | None:
    if resumed.scenario.resume_after is None:
        return None
    others = (one for one in recordings if _is_control(one.scenario, resumed.scenario) and _is_wrong(one))
    return next((one.scenario.name for one in others), None)


def _is_control(one: Scenario, resumed: Scenario) -> bool:
    return one.resume_after is None and one.model_dump(exclude=OTHERWISE) == resumed.model_dump(exclude=OTHERWISE)


def _is_wrong(recording: Recording) -> bool:
    if not recording.complete or blocked_reference(recording):
        return False
    if compare_gradients(recording).failures:
        return True
    if own_steps(recording) or not_judged(recording):  # weights may rightly differ there
        return False
    steps = range(min(recording.scenario.num_steps, recording.scenario.keep_steps))
    return bool(compare_weights(recording, steps).failures)
