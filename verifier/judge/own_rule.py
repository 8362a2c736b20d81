"""Whether a run on one rank is needed, because the update rule is the strategy's own or gradients are summed. Pure.

Special here: the class of an optimizer, which ranks note, leaves open whether it only implements what was asked for, as
many sharded ones do. The first step's weights decide: if they equal the single process's, the rule is the one asked
for. SGD or AdamW that forgets the requested decay or the rates of groups is no rule of its own; its first step shows
that. AdamW without decay is one, though: Adam.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np

from verifier.judge.alone import NUDGES, compare_with_alone
from verifier.judge.arithmetic import contract_of, is_exact, is_wide
from verifier.judge.at_rest import moves
from verifier.judge.equivalence import blocked_reference
from verifier.judge.updates import compare_with_reference
from verifier.judge.weight_bounds import weight_bound
from verifier.recording import RankRecording, Recording, derive
from verifier.scenario import ADAMW_DECAY, ADAMW_EPS, DECAY, SLOWER, Scenario

Direction = Callable[[np.ndarray], np.ndarray]
NOTED = "own_rule"  # the note of a rank: an optimizer of a class of the strategy's own
READ_BY = frozenset({"LS202", "LS504"})
NOT_MADE = "the run on one rank, which weights are compared with here, was not made, as where no time is left"
NOT_NUDGED = "what the update rule makes of roundings was not measured, as where no time is left"


def settled(recording: Recording) -> Recording:
    """``recording``, and whether the first step's weights show that the rule is the strategy's own.

    The run on one rank is left out where nothing is compared with it.
    """
    if recording.own_rule or not recording.maybe_own_rule:
        return recording
    brought = "brought" in recording.ranks[0].notes or moves(recording)  # an engine that never steps has no rule
    if brought and _differs_at_once(recording) and not _forgets(recording):
        return derive(recording, own_rule=recording.maybe_own_rule)
    return recording if is_summed(recording) else replace(recording, alone=None)


def shown_by_others(recordings: Sequence[Recording]) -> list[Recording]:
    """``recordings``, all of a run, and what only all show: whether a run on one rank completed for the strategy's own
    rule, whether any weight moved, and whose rule it is where only other recordings' weights can show it.
    """
    compared_alone = any(r.own_rule and r.alone is not None and r.alone.ranks[0].completed for r in recordings)
    trained = [r for r in recordings if r.scenario.same_start and not r.scenario.tagged]
    never_moves = not any(moves(r) for r in trained)
    finite = [r for r in trained if r.complete and not (r.scenario.overflow or r.scenario.infinite_loss)]
    seen = [r for r in recordings if NOTED in r.ranks[0].notes and _compared_at_once(r) and r.complete and moves(r)]
    none_failed = all(r.alone is None or r.alone.ranks[0].completed for r in recordings)  # one that hangs ends them
    is_own = any(r.own_rule for r in seen)
    is_sgd = any(r.scenario.optimizer == "sgd" for r in seen) and not is_own
    told = []
    for recording in recordings:
        hidden = recording.scenario.overflow or not recording.scenario.same_start  # its own weights do not show it
        own_rule = recording.maybe_own_rule if is_own and hidden else recording.own_rule
        told.append(
            derive(
                recording,
                own_rule=own_rule,
                is_sgd_elsewhere=is_sgd and recording.scenario.tagged,
                compared_alone=compared_alone,
                never_moves=never_moves,
                at_rest=never_moves and bool(finite),
                not_made=_not_made(recording) if none_failed else None,
            )
        )
    return told


def _not_made(recording: Recording) -> str | None:
    """Which run on one rank ``recording`` lacks, as where the time was over before it; None if it lacks none."""
    if recording.alone is None:
        due = needs_one_rank(recording) and (is_summed(recording) or _compared_at_once(recording))
        return NOT_MADE if due else None
    if len(recording.nudged) < len(NUDGES) and recording.own_rule and depends_on_roundings(recording):
        return NOT_NUDGED
    return None


def _compared_at_once(recording: Recording) -> bool:
    """Return whether weights show whose rule it is: not if tags or an infinity moved them, nor if replicas started
    elsewhere than the single process.
    """
    scenario = recording.scenario
    if blocked_reference(recording) or scenario.tagged or scenario.overflow or not scenario.same_start:
        return False
    return is_exact(recording) or is_wide(recording)


def _differs_at_once(recording: Recording) -> bool:
    return _compared_at_once(recording) and bool(compare_with_reference(recording, range(1)).failures)


def _forgets(recording: Recording) -> bool:
    """Return whether every rank's first step is SGD's or AdamW's with a decay that is left out or applied to all, or
    with another group's rate, and not the step that was asked for.
    """
    scenario = recording.scenario
    rates = [scenario.lr, scenario.lr * SLOWER] if scenario.groups else [scenario.lr]
    asked = DECAY if scenario.groups else scenario.weight_decay
    if not asked:
        return False
    decays = [0.0, asked] if scenario.optimizer == "sgd" else [ADAMW_DECAY, asked]
    ways = [(lr, decay) for lr in rates for decay in decays]
    parts = [(rank, name) for name in recording.parameter_names for rank in recording.ranks]
    for direction in _DIRECTIONS[scenario.optimizer]:
        if all(_stepped(recording, rank, name, direction, ways) for rank, name in parts):
            as_asked = {name: [scenario.asked_of(name)] for _, name in parts}
            return not all(_stepped(recording, rank, name, direction, as_asked[name]) for rank, name in parts)
    return False


_DIRECTIONS: dict[str, list[Direction]] = {
    "sgd": [lambda gradient: gradient],
    "adamw": [  # the first step's bias-corrected moments; epsilon stands in one of three places
        lambda gradient: gradient / (np.abs(gradient) + ADAMW_EPS),
        lambda gradient: gradient / (np.abs(gradient) + ADAMW_EPS / np.sqrt(1 - 0.999)),
        lambda gradient: gradient / np.sqrt(np.abs(gradient) ** 2 + ADAMW_EPS),
    ],
}


def _stepped(
    recording: Recording, rank: RankRecording, name: str, direction: Direction, ways: Sequence[tuple[float, float]]
) -> bool:
    """Return whether the first step moved ``name`` by one of ``ways`` (rate, decay); True if it has no gradient."""
    assert recording.reference is not None
    gradient, start = recording.reference.tensor("gradient", 0, name), recording.ranks[0].tensor("weight", -1, name)
    after = rank.tensor("weight", 0, name)
    if gradient is None:
        return True
    found = [tensor.values for tensor in (gradient, start, after) if tensor is not None and tensor.values is not None]
    if len(found) < 3 or len({values.shape for values in found}) > 1:
        return False
    slope, begun, came_to = found
    few: np.ndarray | float = (
        4
        * np.finfo(came_to.dtype).eps
        * max(float(np.abs(begun).max(initial=0.0)), float(np.abs(slope).max(initial=0.0)))
    )
    if recording.scenario.optimizer == "adamw":
        expected = recording.reference.tensor("weight", 0, name)
        few = few if expected is None else weight_bound(recording, 0, name, expected)
    slope = direction(slope)
    return any(bool((np.abs(begun - lr * (slope + decay * begun) - came_to) <= few).all()) for lr, decay in ways)


def may_matter(scenario: Scenario) -> bool:
    """Return whether any check compares updates in ``scenario``."""
    if (
        scenario.tagged
        or scenario.uneven
        or scenario.infinite_loss
        or not scenario.same_start
        or scenario.alone_for is not None
    ):
        return False
    return scenario.judged_by is None or not READ_BY.isdisjoint(scenario.judged_by)


def depends_on_roundings(recording: Recording) -> bool:
    """Return whether weights differ from one rank's under the strategy's own rule, possibly by amplified rounding."""
    one = settled(recording)
    if one.alone is None or not one.alone.complete or not one.own_rule:
        return False
    return bool(compare_with_alone(one, range(one.scenario.num_steps)).failures)


def is_summed(recording: Recording) -> bool:
    return bool(contract_of(recording).get("average") == "sum")


def needs_one_rank(recording: Recording) -> bool:
    """Return whether a run on one rank is needed to judge ``recording``."""
    if not recording.complete or recording.scenario.world_size == 1 or not may_matter(recording.scenario):
        return False
    if contract_of(recording).get("lossy"):
        return False
    return is_summed(recording) or bool(settled(recording).own_rule)
