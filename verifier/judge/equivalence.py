"""Compares gradients with the single process's, for several checks. Pure functions on recordings.

Special here: the work is done once per recording. A difference counts only if nothing legitimate explains it, such as
a norm over samples, or an optimizer that reduces at the start of its step. The expected values and bounds are in
``expectation``.
"""

from __future__ import annotations

import math
from dataclasses import replace
from weakref import WeakKeyDictionary

import numpy as np

from verifier.check import Findings
from verifier.judge import in_company, norms, uncalled
from verifier.judge.arithmetic import (
    contract_of,
    has_norms,
    is_exact,
    is_lossy,
    is_wide,
    keeps_float64,
    may_turn_over,
    own_steps,
    sums_in_float16,
)
from verifier.judge.comparison import compare
from verifier.judge.evidence import UNEXPLAINED
from verifier.judge.expectation import Expected, expect
from verifier.judge.inquiry import local_gradients, rounded_gradient, wrong_gradient
from verifier.judge.inside_step import CHANGED_INSIDE, before_its_own_step, weights_tell
from verifier.judge.late_tags import equal_on_arrival, not_reached, tagged_too_late, unreached
from verifier.judge.narrowing import came_in
from verifier.judge.presence import trained_though_frozen, wrong_presence
from verifier.judge.rounding import is_rounding
from verifier.recording import RankRecording, Recording, Tensor
from verifier.verdict import Failure

NOT_SHOWN = (
    "rank {rank} shows no parameter {name}: it was made anew under another name, or is not trained. Bring a "
    "ddp_core.Driver whose named_parameters() gives them under the model's names"
)


def blocked_reference(recording: Recording) -> str | None:
    if recording.reference is None or not recording.reference.completed:
        return "the single-process reference did not come to its end, which is our fault"
    return None


def not_comparable(recording: Recording) -> str | None:
    """Return why gradients cannot be compared with the single process's; None if they can."""
    if reason := not_reached(recording) or tagged_too_late(recording):
        return reason
    if contract_of(recording).get("average") == "sum" and recording.scenario.clip_norm is not None:
        return "the strategy declares average='sum', and what is clipped is then another norm"
    if recording.scenario.unscaled and (why := _is_too_large(recording)):
        return f"the strategy {why}, and gradients are as large already as float16 can hold"
    if not (is_exact(recording) or is_wide(recording)) and _loss_was_rounded(recording):
        return (
            "the strategy multiplies the loss by what is no power of two; in narrow dtypes the whole backward is then "
            "rounded elsewhere than the single process's"
        )
    return None


def _is_too_large(recording: Recording) -> str | None:
    """Return why numbers of a correct strategy may overflow float16 though their mean fits; None if they do not."""
    contract = contract_of(recording)
    if any(scale > 1 for scale in _loss_scales(recording)):
        return "multiplies the loss"
    return "declares a sum that is rounded to float16" if sums_in_float16(contract) else None


def compare_gradients(recording: Recording) -> Findings:
    """Compare every rank's gradient of every parameter, just before the optimizer steps, with the single process's.

    Stops after the first wrong step: later differences are consequences. Several checks call this; the result is
    cached per recording.
    """
    if recording not in _compared:
        _compared[recording] = _compare_gradients(recording)
    found = _compared[recording]
    return replace(found, failures=[failure.model_copy() for failure in found.failures])


_compared: WeakKeyDictionary[Recording, Findings] = WeakKeyDictionary()


def _compare_gradients(recording: Recording) -> Findings:
    findings = Findings(blocked=blocked_reference(recording))
    if findings.blocked:
        return findings
    if reason := not_comparable(recording):
        findings.not_claimed = reason
        return findings
    untold = unreached(recording) | equal_on_arrival(recording)
    for step in range(_num_steps(recording)):
        failures = [
            failure
            for name in (*recording.parameter_names, *_unfrozen(recording, step))
            if name not in untold
            for failure in _compare(recording, step, name, findings)
        ]
        failures = _before_step(recording, step, failures)
        findings.failures += failures
        if failures:
            in_company.temper(recording, step, failures)
            uncalled.temper(recording, step, failures)
            norms.temper(recording, step, failures)
            break
    return findings


def _unfrozen(recording: Recording, step: int) -> list[str]:
    """The frozen parameters for which some rank's optimizer found a gradient."""
    names = recording.frozen_names
    return [name for name in names if any(rank.tensor("gradient", step, name) is not None for rank in recording.ranks)]


def _num_steps(recording: Recording) -> int:
    """The number of steps to compare: 1 if the weights after it may rightly differ from the single process's."""
    kept = min(recording.scenario.num_steps, recording.scenario.keep_steps)
    return min(kept, 1) if own_steps(recording) or may_turn_over(recording) or has_norms(recording) else kept


def _compare(recording: Recording, step: int, name: str, findings: Findings) -> list[Failure]:
    """Compare one gradient on every rank. Equal contents are compared once, and counted for each rank."""
    assert recording.reference is not None
    expected = recording.reference.tensor("gradient", step, name)
    wanted = None if expected is None or expected.values is None else expect(recording, step, name, expected)
    failures, right = list[Failure](), set[object]()
    for rank in recording.ranks:
        observed = rank.tensor("gradient", step, name)
        if observed is None or expected is None:
            failures += _compare_presence(recording, rank, step, name, findings)
        elif observed.bits in right:
            findings.comparisons += 1
        elif observed.values is None or expected.values is None:
            findings.blocked = f"the contents of {name} were not kept"
        elif wanted is not None:
            findings.comparisons += 1
            if _is_right(recording, step, name, observed.values, wanted, findings):
                if (rounded := _rounded(recording, rank, step, observed, wanted)) is None:
                    right.add(observed.bits)
                else:
                    failures.append(rounded)
            else:
                failures += _explained(recording, rank, step, observed, wanted, findings)
        elif not _is_finite(observed.values) and _is_finite(expected.values) and not recording.scenario.overflow:
            findings.comparisons += 1  # no bound is known here, but rounding alone does not give NaN or infinity
            boundless = Expected(expected.values, np.inf)
            failures += _explained(recording, rank, step, observed, boundless, findings)
    return failures


def _is_finite(values: np.ndarray) -> bool:
    return bool(np.isfinite(values).all())


def _rounded(
    recording: Recording, rank: RankRecording, step: int, observed: Tensor, wanted: Expected
) -> Failure | None:
    """The failure if a float64 gradient was rounded, in a model whose narrower layers' noise hides that; else None."""
    if is_exact(recording) or is_wide(recording) or is_lossy(recording):
        return None
    if observed.values is None or not keeps_float64(recording, observed.dtype):
        return None
    dtype = came_in(observed.values, wanted.values, recording.scenario.world_size, wanted.bound)
    if dtype is None:
        return None
    difference = compare(observed.values, wanted.values, wanted.bound)
    return rounded_gradient(recording, rank, step, observed.name, dtype, difference)


def _explained(
    recording: Recording, rank: RankRecording, step: int, observed: Tensor, wanted: Expected, findings: Findings
) -> list[Failure]:
    """The failure for a wrong gradient; none if it was right before the strategy's own rule changed it."""
    assert observed.values is not None
    earlier = before_its_own_step(recording, rank, step, observed.name)
    if earlier is not None and _is_right(recording, step, observed.name, earlier, wanted, findings):
        if not weights_tell(recording, strictly=is_exact(recording) or is_wide(recording)):
            findings.blocked = CHANGED_INSIDE
        return []
    difference = compare(observed.values, wanted.values, wanted.bound)
    findings.note_margin(difference.margin)
    return [wrong_gradient(recording, rank, step, observed.name, observed.values, wanted.values, difference)]


def _before_step(recording: Recording, step: int, failures: list[Failure]) -> list[Failure]:
    """``failures``, restated for the gradients before ``step()`` if the strategy's own rule made unexplained values.

    This needs ranks that still held their own gradients then: ``step()`` may have reduced them before its update.
    """
    if not any(failure.cause in UNEXPLAINED for failure in failures):
        return failures
    earlier = [_own_before_step(recording, step, failure) for failure in failures]
    if not any(own for own, failure in zip(earlier, failures, strict=True) if failure.cause in UNEXPLAINED):
        return failures
    told = zip(earlier, failures, strict=True)
    return [own or _had_none(recording, step, failure) or failure for own, failure in told]


def _had_none(recording: Recording, step: int, failure: Failure) -> Failure | None:
    """The failure if this rank had no gradient of its own, and one was made inside ``step()``; else None."""
    name, rank = failure.parameter or "", failure.rank or 0
    local, reference = local_gradients(recording, step, name), recording.reference
    if failure.cause not in UNEXPLAINED or not local or (rank in local and local[rank].any()):
        return None
    expected = reference.tensor("gradient", step, name) if reference is not None else None
    return wrong_presence(recording, rank, step, name, expected)


def _own_before_step(recording: Recording, step: int, failure: Failure) -> Failure | None:
    """The failure for the gradient before ``step()``, if it was the rank's own, also if that was zeros; else None."""
    assert recording.reference is not None
    name, rank = failure.parameter or "", recording.ranks[failure.rank or 0]
    expected = recording.reference.tensor("gradient", step, name)
    if expected is None or (earlier := before_its_own_step(recording, rank, step, name)) is None:
        return None
    if (wanted := expect(recording, step, name, expected)) is None:
        return None
    difference = compare(earlier, wanted.values, wanted.bound)
    own = wrong_gradient(recording, rank, step, name, earlier, wanted.values, difference, before_step=True)
    mine = local_gradients(recording, step, name).get(rank.rank)
    if mine is not None and not (mine.any() or earlier.any()):  # zeros are no evidence to any pattern
        return own.model_copy(update={"cause": "not_synchronised", "confidence": 1.0})
    return own if own.cause == "not_synchronised" else None


def _is_right(
    recording: Recording, step: int, name: str, values: np.ndarray, wanted: Expected, findings: Findings
) -> bool:
    difference = compare(values, wanted.values, wanted.bound)
    if difference.equal:
        findings.note_margin(difference.margin)
        return True
    if is_rounding(recording, step, name, values, wanted.values):
        return True
    return has_norms(recording) and norms.is_right(recording, step, name, values, wanted.values)


def _compare_presence(
    recording: Recording, rank: RankRecording, step: int, name: str, findings: Findings
) -> list[Failure]:
    """The failures where one side has no gradient. Zeros in its place are equal; LS202 judges their effect."""
    assert recording.reference is not None
    expected, observed = recording.reference.tensor("gradient", step, name), rank.tensor("gradient", step, name)
    if not rank.completed and ("weight", step, name) not in rank.tensors:
        findings.blocked = f"rank {rank.rank} did not come to the end of step {step}"
        return []
    if observed is expected:  # both None: neither has a gradient
        return []
    present = observed or expected
    assert present is not None
    if present.values is not None and not np.count_nonzero(present.values):
        findings.comparisons += 1
        return []
    if observed is None and not any(("weight", at, name) in rank.tensors for at in (-1, step)):
        findings.blocked = NOT_SHOWN.format(name=name, rank=rank.rank)
        return []
    if observed is None and contract_of(recording).get("sharded"):  # only the owner has it: LS202 judges the weights
        return []
    findings.comparisons += 1
    if name in recording.frozen_names:
        return [trained_though_frozen(recording, rank.rank, step, name)]
    return [wrong_presence(recording, rank.rank, step, name, expected)]


def _loss_was_rounded(recording: Recording) -> bool:
    """Return whether the strategy multiplied the loss by something that is no power of two, such as 1/3."""
    return any(math.frexp(scale)[0] not in (0.5, 0.0) for scale in _loss_scales(recording))


def _loss_scales(recording: Recording) -> list[float]:
    return [rank.notes.get("loss_scale", 1.0) for rank in recording.ranks]
