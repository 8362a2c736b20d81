"""Is what one rank comes to by itself needed, for a rule of the strategy's own, or a sum? Pure functions on recordings.

Special here: what the ranks noted of an optimizer's class leaves open whether it only does what was asked for in other
words, as many sharded ones do. The first step's weights tell; if they are the single process's, nothing is different.
And what does as it is asked where nothing else is asked for has no rule of its own where the same model is to decay, or
has groups with rates of their own: it forgets them.
"""

from __future__ import annotations

from collections.abc import Sequence

from verifier.alone import BOUND, NEVER_MOVES, has_own_rule, moves, off_by
from verifier.equivalence import SHOWN_ALONE, blocked_reference, contract_of, is_exact, is_wide
from verifier.recording import Recording
from verifier.scenario import Scenario
from verifier.updates import compare_with_reference

READ_BY = frozenset({"LS202", "LS504"})


def settle(recording: Recording) -> Recording:
    """``recording``, in which the note ``own_optimizer`` now says whether the rule is the strategy's own."""
    notes = recording.ranks[0].notes
    if "own_rule" in notes and "own_optimizer" not in notes and _differs_at_once(recording):
        notes["own_optimizer"] = notes["own_rule"]
    return recording


def settle_together(recordings: Sequence[Recording]) -> None:
    """What only all recordings of a run together tell; noted in each.

    ``own_optimizer`` is taken back where decay or rates of groups are asked for, and the same model without them has
    shown that the rule is that of the optimizer asked for.
    """
    as_asked = {_model_of(recording) for recording in recordings if _did_as_asked(recording)}
    for recording in recordings:
        notes, scenario = recording.ranks[0].notes, recording.scenario
        if (scenario.groups or scenario.weight_decay) and "own_rule" in notes and _model_of(recording) in as_asked:
            notes.pop("own_optimizer", None)
            del notes["own_rule"]
            recording.alone = recording.alone if is_summed(recording) else None
    shown_alone = any(has_own_rule(r) and r.alone is not None and r.alone.ranks[0].completed for r in recordings)
    never_moves = not any(moves(recording) for recording in recordings if not recording.scenario.tagged)
    for recording in recordings:
        recording.ranks[0].notes[SHOWN_ALONE] = shown_alone
        recording.ranks[0].notes[NEVER_MOVES] = never_moves


def _model_of(recording: Recording) -> tuple[str, str]:
    return recording.scenario.workload, recording.scenario.optimizer


def _did_as_asked(recording: Recording) -> bool:
    """Has the first step, by what may be a rule of its own, moved weights to those of the single process?"""
    notes = recording.ranks[0].notes
    if "own_rule" not in notes or "own_optimizer" in notes or not _can_tell(recording):
        return False
    found = compare_with_reference(recording, range(1))
    return moves(recording) and bool(found.comparisons) and not found.blocked and not found.failures


def _can_tell(recording: Recording) -> bool:
    if blocked_reference(recording) or recording.scenario.tagged:
        return False
    return is_exact(recording) or is_wide(recording)


def _differs_at_once(recording: Recording) -> bool:
    """Does the first step lead elsewhere than the single process's? As near to SGD as roundings are is SGD."""
    if not _can_tell(recording) or not compare_with_reference(recording, range(1)).failures:
        return False
    return recording.scenario.optimizer != "sgd" or any(_is_elsewhere(recording, n) for n in recording.parameter_names)


def _is_elsewhere(recording: Recording, name: str) -> bool:
    """Is a rank's movement further from the single process's than roundings are, all in all?"""
    assert recording.reference is not None
    wanted, start = recording.reference.tensor("weight", 0, name), recording.ranks[0].tensor("weight", -1, name)
    after = [rank.tensor("weight", 0, name) for rank in recording.ranks]
    if wanted is None or start is None or wanted.values is None or start.values is None:
        return True
    if start.values.shape != wanted.values.shape:
        return True
    values = [tensor.values for tensor in after if tensor is not None and tensor.values is not None]
    return any(off_by(observed, wanted.values, start.values) > BOUND for observed in values)


def may_matter(scenario: Scenario) -> bool:
    """Does any check compare updates in it?"""
    if scenario.tagged or scenario.uneven or not scenario.same_start or scenario.alone_for is not None:
        return False
    return scenario.judged_by is None or not READ_BY.isdisjoint(scenario.judged_by)


def is_summed(recording: Recording) -> bool:
    return bool(contract_of(recording).get("average") == "sum")


def needs_one_rank(recording: Recording) -> bool:
    """Is what one rank comes to by itself needed to judge this?"""
    if not recording.complete or recording.scenario.world_size == 1 or not may_matter(recording.scenario):
        return False
    if contract_of(recording).get("lossy"):
        return False
    return is_summed(recording) or has_own_rule(settle(recording))
