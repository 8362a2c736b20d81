"""Compares gradients with the single process's, as far as they are visible. Pure functions on recordings.

Special here: a rank's ``.grad`` is not always what moves its weights. An optimizer's ``step()`` may reduce gradients
into its own slices, as sharded ones do, or in the method that also updates; ``.grad`` then stays each rank's own. If
only its owner steps a parameter, the gradient on other ranks does not matter. In such cases gradients are not claimed
if the weights are right, and LS202 judges the weights.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import numpy as np

from verifier.check import Findings
from verifier.judge import equivalence, expectation
from verifier.judge.arithmetic import contract_of, is_exact, is_narrow, is_single, is_wide
from verifier.judge.comparison import UNIT_ROUNDOFF, compare, largest_element
from verifier.judge.inquiry import local_gradients
from verifier.judge.updates import compare_weights, not_judged
from verifier.lines import MASTERS
from verifier.recording import REDUCTIONS, Recording
from verifier.verdict import Failure

NEAR = 1e-6  # of the largest element: a measured factor has the rounding of the dtype that it is measured in
OUT_OF_SIGHT = (
    "gradients are reduced where .grad does not show it, inside the optimizer or on their owners alone, and weights "
    "come out right, or alike: LS202 judges them"
)

TELL_NOTHING = "gradients are reduced where .grad does not show it, and weights tell nothing"
NO_EVIDENCE, CLIPPED = 0.5, 0.6  # confidences of failures from a sharder's own ``.grad``
ELSEWHERE_HINT = "see LS202 and LS301; or weights were not handed out once they were stepped, or in another order"
CLIP_HINT = "take the norm over all shards: squares are added up over ranks, and the root is drawn once"
NOWHERE = "the strategy declares sharded=True, and no rank shows a gradient of any parameter: LS202 judges the weights"


def compare_gradients(recording: Recording) -> Findings:
    """``equivalence.compare_gradients`` without failures that are no evidence."""
    found = equivalence.compare_gradients(recording)
    if _nowhere(recording, found):
        return replace(found, not_claimed=NOWHERE)
    if not found.failures:
        return found
    if any(failure.step != 0 for failure in found.failures):
        return _without_consequences(recording, found)
    reason = _out_of_sight(recording, found.failures)
    if reason is None:
        return replace(found, failures=[_as_seen(recording, failure) for failure in found.failures])
    seen = found.comparisons - len(found.failures)
    if reason is OUT_OF_SIGHT:
        return Findings(comparisons=seen, not_claimed=reason)
    return Findings(comparisons=seen, blocked=reason)


def _as_seen(recording: Recording, failure: Failure) -> Failure:
    """``failure``, restated if a sharder's ``.grad`` is the rank's own and as many numbers as are trained were reduced:
    ``.grad`` is then no evidence, and the fault lies in the use of the reduced gradients.
    """
    if failure.cause != "not_synchronised" or not (contract_of(recording).get("sharded") and _reduces(recording)):
        return failure
    told = failure.explanation.partition(":")[0] + "; as many numbers as have a gradient were reduced elsewhere, and "
    if recording.scenario.clip_norm is not None:
        told += "weights were not seen to move by what is left of their mean once it is clipped"
        clipped = {"cause": "clipped_otherwise", "confidence": CLIPPED, "explanation": told, "hint": CLIP_HINT}
        return failure.model_copy(update=clipped)
    told += "weights were not seen to come out right"
    return failure.model_copy(update={"confidence": NO_EVIDENCE, "explanation": told, "hint": ELSEWHERE_HINT})


def whose_weights_are_wrong(recording: Recording, failures: list[Failure]) -> list[Failure]:
    """``failures`` of the first step without parameters whose weights are right all the same, if any remain.

    A strategy that forgets one parameter in a ``step()`` that reduces, or on a server, has not forgotten all. Under the
    strategy's own rule, weights that such a step moved equally on all ranks are right.
    """
    if not failures or any(failure.step != 0 for failure in failures):
        return failures
    own = bool(recording.maybe_own_rule) and all(_own_gradient(recording, failure) for failure in failures)
    names = {failure.parameter or "" for failure in failures}
    if own and all(_reductions(recording, "step")):
        right = {name for name in names if _same_weights(recording, name, may_rest=False)}
    elif recording.scenario.tagged or not bounds_weights(recording) or not_judged(recording):
        return failures
    else:
        weights = compare_weights(recording, range(1))
        tells = weights.comparisons and not weights.blocked
        compared = names.intersection(recording.parameter_names) if tells else set[str]()
        right = compared - {failure.parameter for failure in weights.failures}
    left = [f for f in failures if f.parameter not in right or f.cause == "weights_made_alike"]
    return left or failures


def _nowhere(recording: Recording, found: Findings) -> bool:
    """Return whether all ranks of a sharded strategy completed with weights recorded but not one gradient."""
    idle = not (found.comparisons or found.failures or found.blocked or found.not_claimed)
    seen = [{what for what, step, _ in rank.tensors if step >= 0} for rank in recording.ranks]
    sharded = bool(contract_of(recording).get("sharded")) and recording.complete
    return idle and sharded and all("weight" in whats and "gradient" not in whats for whats in seen)


def _without_consequences(recording: Recording, found: Findings) -> Findings:
    """``found``, blocked if the weights were wrong before its first wrong step: LS202 reports that earlier step."""
    scenario, first = recording.scenario, min(f.step for f in found.failures if f.step is not None)
    judged = scenario.judged_by is None or "LS202" in scenario.judged_by
    if scenario.tagged or not judged or not_judged(recording) or not bounds_weights(recording):
        return found
    weights = compare_weights(recording, range(first))
    if weights.blocked or not weights.failures:
        return found
    seen = found.comparisons - len(found.failures)
    return Findings(comparisons=seen, blocked=f"the weights were wrong before step {first}: see LS202")


def _out_of_sight(recording: Recording, failures: list[Failure]) -> str | None:
    """Return why the ``failures`` of the first step are no evidence; None if they are.

    An optimizer's ``step()`` may reduce gradients out of sight: into its own slices, as sharded ones do, or in the
    method that also updates; ``.grad`` is then each rank's own. If only its owner steps a parameter, the gradients on
    other ranks do not matter. The weights decide: except in narrow dtypes they are compared with the single process's.
    In narrow dtypes, and for tagged gradients, equal weights on all ranks must suffice. So it is with an undeclared
    parameter server: if one rank has the right gradient and all have the right weights, they came from that rank. The
    strategy's own optimizer may divide a sum in its update, and so may one with master weights: its step counts.
    """
    sharded, own = contract_of(recording).get("sharded"), all(_own_gradient(recording, f) for f in failures)
    wrong = Counter(failure.parameter for failure in failures)
    somewhere_right = all(number < recording.scenario.world_size for number in wrong.values())
    summed = _is_sgd_of_its_own(recording) and all(_is_a_sum(recording, failure) for failure in failures)
    masters = all(rank.notes.get(MASTERS) for rank in recording.ranks) and _have_one_factor(recording)
    if not (sharded or own or somewhere_right or summed or masters):
        return None
    if own and not any(rank.named("weight", 0) for rank in recording.ranks):
        return "no rank came to the end of the optimizer's step, which may reduce gradients itself"
    hidden = (sharded or bool(recording.maybe_own_rule)) and own and _reduces_inside_the_step(recording)
    if not recording.scenario.tagged and bounds_weights(recording):
        if own and recording.maybe_own_rule and (unknown := not_judged(recording)):
            return f"{TELL_NOTHING}: {unknown}"
        weights = compare_weights(recording, range(1))
        if weights.comparisons and not weights.failures and not weights.blocked:
            return OUT_OF_SIGHT
        if not hidden:
            return None  # if hidden, the optimizer is another one or forgets a parameter, which LS202 reports
    if is_narrow(recording) and compare_weights(recording, range(1)).failures:
        return None  # equal on all ranks, and wrong
    may_rest = bool(hidden or recording.maybe_own_rule)  # a small step may be lost to rounding
    names = [name for name in wrong if name is not None]
    alike = all(_same_weights(recording, n, may_rest=may_rest or _is_negligible(recording, n)) for n in names)
    return OUT_OF_SIGHT if alike and (own or somewhere_right or summed or masters) else None


def bounds_weights(recording: Recording) -> bool:
    """Return whether a bound is known for the weights' distance from the single process's."""
    return is_exact(recording) or is_wide(recording) or is_single(recording)


def _is_sgd_of_its_own(recording: Recording) -> bool:
    """Return whether the strategy's optimizer (``own_rule``) does as asked, or forgets only a decay or a rate."""
    return bool(recording.maybe_own_rule) and not recording.own_rule


def _reduces_inside_the_step(recording: Recording) -> bool:
    """Return whether every rank reduces, inside its first ``step()``, at least as many numbers as have a gradient."""
    return _reduces(recording, "step")


def _reduces(recording: Recording, phase: str | None = None) -> bool:
    """The same in ``phase`` of the first step; None: in all phases together."""
    used = recording.reference.named("gradient", 0) if recording.reference is not None else {}
    known = recording.ranks[0].notes.get("parameters", [])
    trained = sum(entry["numel"] for entry in known if entry["name"] in used or not used)
    return all(reduced >= trained > 0 for reduced in _reductions(recording, phase))


def _reductions(recording: Recording, phase: str | None) -> list[int]:
    """How many numbers each rank reduced in ``phase`` of the first step; None: in all phases together."""
    first = [[c for c in r.collectives if c.step == 0 and phase in (None, c.phase)] for r in recording.ranks]
    return [sum(c.numel for c in issued if c.op in REDUCTIONS) for issued in first]


def _is_a_sum(recording: Recording, failure: Failure) -> bool:
    """Return whether the wrong gradient is the expected mean times the world size."""
    rank, step, name = failure.rank, failure.step, failure.parameter
    if recording.reference is None or rank is None or step is None or name is None:
        return False
    expected = recording.reference.tensor("gradient", step, name)
    observed = recording.ranks[rank].tensor("gradient", step, name)
    if expected is None or observed is None or expected.values is None or observed.values is None:
        return False
    wanted = expectation.expect(recording, step, name, expected)
    mean = observed.values.astype(np.result_type(observed.values, np.float64)) / recording.scenario.world_size
    return wanted is not None and compare(mean, wanted.values, wanted.bound).equal


def _have_one_factor(recording: Recording) -> bool:
    """Return whether every gradient of the first step, on every rank, is the right one times one common factor."""
    factors: list[float] = []
    for name in recording.parameter_names:
        reference = recording.reference.tensor("gradient", 0, name) if recording.reference is not None else None
        wanted = expectation.expect(recording, 0, name, reference) if reference is not None else None
        if wanted is None or not wanted.values.any():
            continue
        at = int(np.abs(wanted.values).argmax())
        for rank in recording.ranks:
            observed = rank.tensor("gradient", 0, name)
            if observed is None or observed.values is None or observed.values.shape != wanted.values.shape:
                return False
            values = observed.values.astype(np.result_type(observed.values, np.float64))
            factors.append(abs(values.flat[at] / wanted.values.flat[at]))
            near = np.broadcast_to(wanted.bound, wanted.values.shape) + NEAR * np.abs(wanted.values).max()
            if not factors[0] or not (np.abs(values / factors[0] - wanted.values) <= near).all():
                return False
    return bool(factors)


def _own_gradient(recording: Recording, failure: Failure) -> bool:
    """Return whether the rank of ``failure`` holds exactly its own gradient, or none where it computed none."""
    if failure.cause == "not_synchronised":
        return failure.confidence == 1.0
    if failure.parameter is None or failure.step is None:
        return False
    if failure.cause != "missing_gradient":
        return _zeros_of_its_own(recording, failure.rank or 0, failure.step, failure.parameter)
    if all(rank.tensor("gradient", failure.step, failure.parameter) is None for rank in recording.ranks):
        return True  # consumed inside the step, or handed to the optimizer as soon as it was computed
    mine = local_gradients(recording, failure.step, failure.parameter).get(failure.rank or 0)
    return mine is None or not mine.any()


def _zeros_of_its_own(recording: Recording, rank: int, step: int, name: str) -> bool:
    """Return whether ``rank`` holds zeros and computed zeros; no pattern takes zeros as evidence."""
    mine, held = local_gradients(recording, step, name).get(rank), recording.ranks[rank].tensor("gradient", step, name)
    return mine is not None and held is not None and held.values is not None and not (mine.any() or held.values.any())


def _is_negligible(recording: Recording, name: str) -> bool:
    """Return whether the gradient of ``name`` is rounding alone, as that of a bias in front of a norm."""
    gradients = recording.reference.named("gradient", 0) if recording.reference is not None else {}
    largest = {n: largest_element(t.values) for n, t in gradients.items() if t.values is not None}
    unit = UNIT_ROUNDOFF.get(gradients[name].dtype, 0.0) if name in gradients else 0.0
    return name in largest and largest[name] <= expectation.ROUNDINGS * unit * max(largest.values())


def _same_weights(recording: Recording, name: str, *, may_rest: bool) -> bool:
    """Return whether all ranks have equal weights that, unless they ``may_rest``, differ from the initial ones."""
    after = [rank.tensor("weight", 0, name) for rank in recording.ranks]
    before = recording.ranks[0].tensor("weight", -1, name)
    digests = {tensor.digest if tensor is not None else None for tensor in after}
    return len(digests) == 1 and None not in digests and (may_rest or before is None or before.digest not in digests)
