"""Whether a saved and resumed training run is wrong without the restart as well: then the restart is not the cause.

Special here: a control experiment, where the run has one: the same scenario without the restart, with other numbers.
Otherwise a mistake that begins in a later step would be attributed to the restart before it. Where the restart comes
before the first step, that other scenario may have one that comes later, and only what is before it counts. Pure.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from verifier.judge.arithmetic import contract_of, own_steps
from verifier.judge.equivalence import blocked_reference
from verifier.judge.out_of_sight import compare_gradients
from verifier.judge.updates import compare_weights, not_judged
from verifier.recording import Recording, derive
from verifier.scenario import Scenario

OF_THE_RESTART = {"resume_after", "resumed_twice", "built_first"}
OTHERWISE = {"name", "situation", "seed", "delay_ms", "needs", "judged_by", "timeout_s"} | OF_THE_RESTART
LATER = OTHERWISE | {"num_steps", "save_after"}  # of a scenario with a later restart


def held_to_controls(recordings: Sequence[Recording]) -> list[Recording]:
    """``recordings``, each of a resumed run with a wrong scenario, in words, that is the same without the restart."""
    return [derive(one, wrong_without_restart=_wrong_without(one, recordings)) for one in recordings]


def _wrong_without(resumed: Recording, recordings: Sequence[Recording]) -> str | None:
    if resumed.scenario.resume_after is None:
        return None
    others = (one for one in recordings if _is_control(one.scenario, resumed.scenario) and _is_wrong(one))
    return next((f"{one.scenario.name}, the same training {_but_for(one.scenario)}" for one in others), None)


def _but_for(one: Scenario) -> str:
    return "without a restart" if one.resume_after is None else "up to its restart"


def _is_control(one: Scenario, resumed: Scenario) -> bool:
    if resumed.resume_after == -1 and one.resume_after is not None and one.resume_after >= 0:
        return one.model_dump(exclude=LATER) == resumed.model_dump(exclude=LATER)
    return one.resume_after is None and one.model_dump(exclude=OTHERWISE) == resumed.model_dump(exclude=OTHERWISE)


def _is_wrong(recording: Recording) -> bool:
    if not recording.complete or blocked_reference(recording):
        return False
    if (last := recording.scenario.resume_after) is not None:
        return not (not_judged(recording) or right_before(recording, last))
    if compare_gradients(recording).failures:
        return True
    if own_steps(recording) or not_judged(recording):  # weights may rightly differ there
        return False
    steps = range(min(recording.scenario.num_steps, recording.scenario.keep_steps))
    return bool(compare_weights(recording, steps).failures)


def right_before(recording: Recording, last: int) -> bool:
    """Return whether weights were right up to step ``last``, after which they were saved.

    The last ones may have been under way still, into a copy that the next forward puts in place. With sharded state, a
    rank that fetches weights in the next forward did not receive them, and it is enough that another rank had them.
    """
    failures = compare_weights(recording, range(last + 1)).failures
    if not failures or {failure.step for failure in failures} != {last}:
        return not failures
    wrong = Counter(failure.parameter for failure in failures)
    somewhere = all(number < recording.scenario.world_size for number in wrong.values())  # at its owner's
    return saved_under_way(recording) or bool(contract_of(recording).get("sharded") and somewhere)


def saved_under_way(recording: Recording) -> bool:
    """Return whether a collective was still under way on some rank when ``state_dict()`` was called."""
    return any(rank.notes.get("saved_under_way") for rank in recording.ranks)
