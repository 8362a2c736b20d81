"""Is what one rank comes to by itself needed, for a rule of the strategy's own, or a sum? Pure functions on recordings.

Special here: what the ranks noted of an optimizer's class leaves open whether it only does what was asked for in other
words, as many sharded ones do. The first step's weights tell; if they are the single process's, nothing is different.
"""

from __future__ import annotations

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


def _differs_at_once(recording: Recording) -> bool:
    if blocked_reference(recording) or recording.scenario.tagged:
        return False
    if not (is_exact(recording) or is_wide(recording)):
        return False
    return bool(compare_with_reference(recording, range(1)).failures)


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
