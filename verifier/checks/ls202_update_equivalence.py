"""Update equivalence: after each step the weights are those of the single process.

Claim: where the gradients were right, so are the weights after ``optimizer.step()``: every parameter was stepped once,
with the right state, and a parameter that no rank used stayed where it was. In exact arithmetic weights agree bit for
bit (if a factor that the strategy applies rounds gradients, up to the effect of that on weights), else within a bound
that follows from the dtype and the optimizer. In float32 and complex64 the bound is a thousandth of what has moved. In
half precision it is a quarter of what has moved, plus four roundings for each step; only the first step is compared,
and the second if the learning rate changed or a batch was dropped before it.

Where the update rule is the strategy's own (Muon, Lion, another AdamW), the standard is the same strategy, run on one
rank that takes all ranks' samples. Each tensor's movement must agree to a hundredth. The rule counts as the strategy's
own if its driver makes another optimizer than the loop asked for, or the contract says ``optimizer="own"``. If all
weights stay unchanged or become NaN on one rank as well, they show nothing: unknown, and not judged in half precision.
With ``average="sum"`` the standard is a single process whose loss is multiplied by the number of ranks, and the bound a
ten-thousandth.

Catches: an optimizer that holds other tensors than those that are trained; steps skipped or taken twice; sharded
optimizers that do not hand out what they own; optimizer state that is lost; an inner optimizer that no scheduler
reaches; zero gradients in place of None, by which weight decay and momentum move parameters that no rank used, and None
in place of zeros; frozen parameters that move; weights that move by the other ranks' gradients where one rank's is
infinite or NaN; a step that is skipped for one rank's NaN and taken for another's; in an update rule of the strategy's
own, whatever depends on the number of ranks: parameters without an owner, norms and matrices taken in slices.

Blind to: steps from the first wrong gradient on, which LS201 reports; a rule of the strategy's own that is as wrong on
one rank (but for parameters that never move), or cannot be run on one rank; with ``average="sum"``, if the strategy
cannot be run on one rank, steps after the first; a strategy that takes a step with zero gradients where others skip it.

Seen in the wild: huggingface/accelerate#2665 (the optimizer held the parameters from before wrapping);
pytorch/pytorch#28294 (unused parameters moved by momentum); huggingface/accelerate#2790 (a step too many);
KellerJordan/Muon#45 (what becomes of a matrix that is sharded).

Remedy: make the optimizer from the parameters that are trained, after wrapping; step on every rank, once.
"""

from __future__ import annotations

from dataclasses import replace

from verifier.check import Findings, check
from verifier.judge.alone import standard
from verifier.judge.arithmetic import contract_of, is_exact, is_narrow, is_wide, may_turn_over
from verifier.judge.at_rest import nothing_shown
from verifier.judge.comparison import UNIT_ROUNDOFF
from verifier.judge.equivalence import blocked_reference, not_comparable
from verifier.judge.frozen import compare_frozen
from verifier.judge.late_tags import equal_on_arrival, unreached
from verifier.judge.movement import rests
from verifier.judge.out_of_sight import bounds_weights, compare_gradients
from verifier.judge.overflowed import compare_overflow
from verifier.judge.steps_taken import compare_steps_taken
from verifier.judge.updates import compare_weights, not_judged
from verifier.lines import NOT_RESCHEDULED, OF_THE_WRAPPER
from verifier.recording import REDUCTIONS, Recording

AT_REST = {"not_stepped", "never_steps_again"}
NOT_HANDED_OVER = (
    "no weight moved, and the wrapper has trained parameters of its own ({}), which this loop's optimizer was not "
    "given: a ddp_core.Driver whose make_optimizer() takes them says so (docs/driving.md)"
)


@check(when=lambda scenario: not scenario.tagged or scenario.tags_move_weights)
def update_equivalence(recording: Recording) -> Findings:
    if recording.scenario.tagged and (reason := not_told_by_tags(recording)):
        return Findings(not_claimed=reason)
    if recording.scenario.overflow:
        return replace(_if_handed_over(recording, compare_overflow(recording)), aside=True)
    if recording.scenario.infinite_loss:
        return replace(compare_steps_taken(recording), aside=True)
    frozen = compare_frozen(recording)
    findings = _if_handed_over(recording, _compare_trained(recording))
    findings.comparisons += frozen.comparisons
    findings.failures += frozen.failures
    return findings


def _if_handed_over(recording: Recording, findings: Findings) -> Findings:
    """``findings``; none if all weights rest, and the wrapper has trained parameters that this loop did not step."""
    kept = recording.ranks[0].notes.get(OF_THE_WRAPPER)
    if not kept or not findings.failures or not {failure.cause for failure in findings.failures} <= AT_REST:
        return findings
    if all(rests(rank, name, -1, 0) for rank in recording.ranks for name in recording.parameter_names):
        return Findings(blocked=NOT_HANDED_OVER.format(", ".join(kept)))
    return findings


def _compare_trained(recording: Recording) -> Findings:
    if reason := blocked_reference(recording):
        return Findings(blocked=reason)
    if reason := not_judged(recording):
        return _judge_what_is_shown(recording, reason)
    if is_narrow(recording):
        return _compare_narrow(recording)
    if not bounds_weights(recording):
        return Findings(not_claimed="in narrow dtypes weights differ by roundings that are not bounded here")
    gradients = compare_gradients(recording)
    steps = _num_steps(recording, gradients)
    if steps == 0:
        return Findings(blocked="the gradients are wrong from the first step on: see LS201")
    findings = compare_weights(recording, range(steps))
    if NOT_RESCHEDULED in recording.ranks[0].notes and not (findings.failures or findings.blocked):
        findings.not_claimed = "the optimizer does not show the options that are to change: the steps before are right"
    if recording.alone is not None:
        _say_what_was_narrow(recording, findings)
        return findings
    brought = recording.ranks[0].notes.get("brought")
    for failure in findings.failures:
        if failure.cause == "update_differs" and brought is not None:
            failure.hint = f"{failure.hint}; if {brought} has an update rule of its own: Contract(optimizer='own')"
        if failure.cause == "update_differs" and gradients.not_claimed:
            failure.explanation = (
                f"the weights of {failure.parameter} after step {failure.step} are not those of the single process; "
                "its gradient was reduced where it could not be seen"
            )
    return findings


def _say_what_was_narrow(recording: Recording, findings: Findings) -> None:
    """Say in place that gradients were added up in a narrower dtype than any parameter's, which nobody declared: under
    a rule of the strategy's own no gradient may show it.
    """
    units = [UNIT_ROUNDOFF.get(entry["dtype"], 1.0) for entry in recording.ranks[0].notes.get("parameters", [])]
    reduced = {c.dtype for c in recording.ranks[0].collectives if c.op in REDUCTIONS and c.step >= 0}
    narrow = sorted(dtype for dtype in reduced if UNIT_ROUNDOFF.get(dtype, 0.0) > max(units, default=1.0))
    if not narrow or contract_of(recording).get("lossy"):
        return
    for failure in findings.failures:
        if failure.cause == "update_differs":
            failure.hint = f"{failure.hint}; something was reduced as {narrow[0]}: if that is meant, "
            failure.hint += f"Contract(lossy={narrow[0]!r})"


def not_told_by_tags(recording: Recording) -> str | None:
    """Why weights moved by tagged gradients show nothing; None if they do, and the rule is the one asked for."""
    if blocked_reference(recording):
        return None
    lossy = contract_of(recording).get("lossy")
    if lossy:
        return f"the strategy declares lossy={lossy!r}, and tags do not survive rounding"
    if unreached(recording) | equal_on_arrival(recording):
        return "tags do not reach some parameters, or come after their reduction"
    rule = recording.own_rule if recording.derived.is_sgd_elsewhere else recording.maybe_own_rule
    return not_comparable(recording) or (f"the update rule may be the strategy's own ({rule})" if rule else None)


def _num_steps(recording: Recording, gradients: Findings) -> int:
    """How many steps are compared: those before the first wrong gradient for which the single process is a standard."""
    scenario = recording.scenario
    wrong_from = min((f.step for f in gradients.failures if f.step is not None), default=scenario.num_steps)
    steps = min(wrong_from, scenario.keep_steps, scenario.num_steps)
    steps = min(steps, 1 + recording.ranks[0].notes.get(NOT_RESCHEDULED, steps))
    if contract_of(recording).get("average") == "sum" and standard(recording) is None:
        steps = min(steps, 1)  # the first step is W times as long, and later ones start elsewhere
    if may_turn_over(recording):
        steps = min(steps, 1)
    if scenario.resume_after is not None:  # the saved replica's last weights may arrive elsewhere: see LS504
        steps = min(steps, scenario.resume_after)
    return steps


def _compare_narrow(recording: Recording) -> Findings:
    """Compare the first step within a wide bound: it shows narrow weights that were not sent or had a wrong gradient.

    A second step is compared if a rate was changed or a batch dropped before it and all ranks show the same gradients.
    """
    if compare_gradients(recording).failures:
        return Findings(blocked="the gradients are wrong: see LS201")
    scenario = recording.scenario
    changed = (scenario.new_lr_after == (0,) or scenario.drop_before == 1) and _num_steps(recording, Findings()) > 1
    findings = compare_weights(recording, range(2 if changed and _have_one_gradient(recording, 1) else 1))
    for failure in findings.failures:
        if failure.step and failure.cause == "update_differs":
            failure.explanation = (
                f"the weights of {failure.parameter} after step {failure.step} are not those of the single process, "
                "though they were after the first; what its gradient should be is not known that far in half precision"
            )
    return findings


def _have_one_gradient(recording: Recording, step: int) -> bool:
    """Return whether all ranks show the same gradients in ``step``, with the same bits."""
    shown = [{name: tensor.bits for name, tensor in rank.named("gradient", step).items()} for rank in recording.ranks]
    return bool(shown[0]) and all(of_one == shown[0] for of_one in shown)


def _judge_what_is_shown(recording: Recording, reason: str) -> Findings:
    """Judge a rule without a standard: ``blocked`` if it moves no weight that has a gradient, or moves all to NaN."""
    steps = range(min(recording.scenario.keep_steps, recording.scenario.num_steps))
    if not (recording.complete and recording.own_rule and (is_exact(recording) or is_wide(recording)) and steps):
        return Findings(not_claimed=reason)
    if nothing := nothing_shown(recording, steps):
        return Findings(blocked=nothing)
    return Findings(not_claimed=reason)


CHECK = update_equivalence
