"""Is what one rank comes to by itself needed, for a rule of the strategy's own, or a sum? Pure functions on recordings.

Special here: what the ranks noted of an optimizer's class leaves open whether it only does what was asked for in other
words, as many sharded ones do. The first step's weights tell; if they are the single process's, nothing is different.
And what does as it is asked in one scenario has no rule of its own in another, where the same optimizer is asked for,
with a decay or a rate for each group: it forgets them.
"""

from __future__ import annotations

from collections.abc import Sequence

from verifier.alone import has_own_rule
from verifier.equivalence import blocked_reference, contract_of, is_exact, is_wide
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
    """Take back ``own_optimizer`` where another scenario has shown that the rule is that of the optimizer asked for."""
    as_asked = {recording.scenario.optimizer for recording in recordings if _did_as_asked(recording)}
    for recording in recordings:
        notes = recording.ranks[0].notes
        if recording.scenario.optimizer not in as_asked or "own_rule" not in notes:
            continue
        if notes.pop("own_rule") == notes.get("own_optimizer"):
            del notes["own_optimizer"]
            recording.alone = recording.alone if is_summed(recording) else None


def _did_as_asked(recording: Recording) -> bool:
    """Has the first step, by what may be a rule of its own, moved weights to those of the single process?"""
    notes = recording.ranks[0].notes
    if "own_rule" not in notes or "own_optimizer" in notes or not _can_tell(recording):
        return False
    found, (before, after) = (
        compare_with_reference(recording, range(1)),
        ([recording.ranks[0].tensor("weight", step, name) for name in recording.parameter_names] for step in (-1, 0)),
    )
    moved = any(b is not None and a is not None and b.digest != a.digest for b, a in zip(before, after, strict=True))
    return moved and bool(found.comparisons) and not found.blocked and not found.failures


def _can_tell(recording: Recording) -> bool:
    if blocked_reference(recording) or recording.scenario.tagged:
        return False
    return is_exact(recording) or is_wide(recording)


def _differs_at_once(recording: Recording) -> bool:
    return _can_tell(recording) and bool(compare_with_reference(recording, range(1)).failures)


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
