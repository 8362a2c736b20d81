"""What a wrong gradient is beside others: whether its step's other gradients, and the contract, bear its cause out.

Special here: the verdict stays. A pattern is fitted to one tensor, and what it says of that tensor is true; as the
reason it is less certain where other tensors are right, or where the strategy declares a sum.
"""

from __future__ import annotations

from verifier.judge.arithmetic import contract_of
from verifier.judge.evidence import UNEXPLAINED
from verifier.judge.inquiry import local_gradients
from verifier.recording import Recording
from verifier.verdict import Failure

NOWHERE = "reduce on all ranks what some rank used: also a parameter that the first step did not use"
ONCE = "reduce and divide every parameter once: tied ones, those of the last bucket"


def temper(recording: Recording, step: int, failures: list[Failure]) -> None:
    """Lower confidences in place: if some parameters were averaged and others not, "summed" is not the reason."""
    assert recording.reference is not None
    if any(failure.cause in UNEXPLAINED for failure in failures):
        for failure in failures:
            if failure.cause == "one_ranks_gradient":  # a maximum or median over ranks may be one rank's, too
                failure.confidence = min(failure.confidence, 0.6)
    _tell_left_out(failures)
    if contract_of(recording).get("average") == "sum":
        for failure in failures:
            _as_a_sum(failure)
    gradients = recording.reference.named("gradient", step)
    used = {name for name, tensor in gradients.items() if tensor.values is not None and tensor.values.any()}
    if used <= {failure.parameter for failure in failures}:
        return
    unreduced = _tell_unreduced(recording, step, failures)
    for failure in failures:
        if failure.cause == "missing_accumulation_average":
            failure.confidence = min(failure.confidence, 0.6)
            failure.explanation += "; other parameters are right, so this one may have been added or reduced twice"
            failure.hint = ONCE
        if failure.cause == "missing_average" and failure.parameter not in unreduced:
            failure.confidence = min(failure.confidence, 0.8)
            if _ranks_with_gradient(recording, step, failure.parameter or "") == 1:
                failure.explanation += (
                    "; other parameters are averaged, and of this one a single rank has a gradient: the "
                )
                failure.explanation += "sum may have been divided by the number of ranks that have one"
                failure.hint = "divide by the world size: a rank that did not use a parameter counts as a zero"
                continue
            failure.explanation += "; other parameters are right, so this one may have been reduced more than once"
            failure.hint = ONCE


def _tell_unreduced(recording: Recording, step: int, failures: list[Failure]) -> set[str | None]:
    """Say in place that a gradient was reduced nowhere, if some ranks have none and another may have its own alone.

    Returns the parameters. Where one rank uses a parameter, its own gradient is W times the mean.
    """
    absent = {failure.parameter for failure in failures if failure.cause == "missing_gradient"}
    summed = [f for f in failures if f.cause == "missing_average" and f.parameter in absent]
    alone = [f for f in summed if _ranks_with_gradient(recording, step, f.parameter or "") in (1, None)]
    for failure in alone:
        failure.confidence = 0.5
        failure.explanation += "; but another rank has none: this may be the only rank's own gradient, reduced nowhere"
    own = {f.parameter for f in failures if f.cause == "not_synchronised" and f.parameter in absent}
    unreduced = own | {failure.parameter for failure in alone}
    for failure in failures:
        if failure.parameter in unreduced and failure.cause in ("missing_gradient", "missing_average"):
            failure.hint = NOWHERE
    return unreduced


def _tell_left_out(failures: list[Failure]) -> None:
    """Say in place that zeros may be elements that nobody sent, if they are in other parameters."""
    sent_in_part = any(failure.cause == "elements_left_out" for failure in failures)
    for failure in failures if sent_in_part else ():
        if failure.cause != "gradient_cleared":
            continue
        failure.confidence = min(failure.confidence, 0.5)
        failure.explanation += "; of other parameters only some elements were sent, and of this one perhaps none"


def _as_a_sum(failure: Failure) -> None:
    """Say in place what is wrong with a sum that was declared."""
    if failure.cause == "averaged_twice":
        failure.explanation += "; the strategy declares average='sum', and this is the mean"
        failure.hint = "hand out the sum, or declare Contract(average='mean')"
    if failure.cause == "missing_average":
        failure.explanation = f"{failure.explanation.partition(':')[0]}: what is summed already is summed again"
        failure.hint = ONCE


def _ranks_with_gradient(recording: Recording, step: int, name: str) -> int | None:
    """The number of ranks whose own gradient of ``name`` is not zero; None if unknown."""
    return sum(bool(own.any()) for own in local_gradients(recording, step, name).values()) or None
