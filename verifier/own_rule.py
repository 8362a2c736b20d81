"""Where the strategy's update rule is its own: is it, and is it to be run on one rank? Pure functions on recordings.

Special here: what the ranks noted of an optimizer's class leaves open whether it only does what was asked for in other
words, as many sharded ones do. The first step's weights tell; if they are the single process's, nothing is different.
"""

from __future__ import annotations

from verifier.equivalence import blocked_reference, contract_of, is_exact, is_wide
from verifier.recording import Recording
from verifier.scenario import Scenario
from verifier.updates import compare_weights

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
    return bool(compare_weights(recording, range(1)).failures)


def may_matter(scenario: Scenario) -> bool:
    """Does any check compare updates in it?"""
    if scenario.tagged or scenario.uneven or not scenario.same_start or scenario.alone_for is not None:
        return False
    return scenario.judged_by is None or not READ_BY.isdisjoint(scenario.judged_by)


def needs_one_rank(recording: Recording) -> bool:
    """Is what one rank comes to by itself needed to judge this?"""
    contract = contract_of(recording)
    if not recording.complete or recording.scenario.world_size == 1 or not may_matter(recording.scenario):
        return False
    if contract.get("average") == "sum" or contract.get("lossy"):
        return False
    return "own_optimizer" in settle(recording).ranks[0].notes
