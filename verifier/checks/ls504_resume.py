"""Resume: fresh replicas that load what was saved go on as if nothing had happened.

Claim: ``state_dict()`` of model and optimizer is saved, and loaded into replicas that were built from other random
numbers. Their weights are then those of a single process that was never interrupted, and so is what an evaluation
returns.

Catches: momentum that is lost; parameters that are not saved, or loaded into copies that are not trained; hooks that
stay on the old tensors; a saved state that cannot be loaded; a copy for evaluations that is not loaded with the rest;
an optimizer inside another, which no scheduler reaches any more once its state was loaded; a broadcast at wrap time
that is not repeated when only one rank loads.

Where the update rule is the strategy's own, the same strategy is saved and resumed on one rank as well, and that run is
the standard: state that its optimizer does not save on any number of ranks is not a matter of replicas. Weights that
are overwritten by those of a fresh replica are wrong by any rule.

Blind to: random numbers and data order, which the loop restores and not the strategy.

Seen in the wild: huggingface/transformers#28270, Lightning-AI/pytorch-lightning#19932, deepmodeling/deepmd-kit#5570.

Remedy: save model and optimizer; load both on every rank, after wrapping.
"""

from __future__ import annotations

import numpy as np

from verifier.check import Findings, check
from verifier.judge.agreement import compare_across_ranks
from verifier.judge.alone import standard
from verifier.judge.arithmetic import is_lossy, own_steps
from verifier.judge.diagnosis import SEEN_ONLY
from verifier.judge.evaluated import compare_outputs
from verifier.judge.out_of_sight import bounds_weights
from verifier.judge.overwritten import overwritten
from verifier.judge.uninterrupted import right_before, saved_under_way
from verifier.judge.updates import compare_weights, not_judged
from verifier.recording import Recording
from verifier.refusal import last_words, stopped_by_what_it_loaded
from verifier.verdict import Failure

PUT_BACK = "they are nearly those that the fresh replica was built with, and not what it had loaded"
MAKE_AGAIN = "save and load masters and flat shards as well, or make them anew from the weights once these are loaded"


@check(when=lambda scenario: scenario.resume_after is not None)
def resume(recording: Recording) -> Findings:
    if reason := not_judged(recording) or (own_steps(recording) if standard(recording) is None else None):
        return Findings(not_claimed=reason)
    first, schedule = recording.scenario.resume_after, recording.scenario.new_lr_after
    assert first is not None
    if schedule and is_lossy(recording):
        return Findings(not_claimed="what a lower learning rate changes is less than what may be lost on the wire")
    if not_loaded := _not_loaded(recording):
        return Findings(comparisons=len(not_loaded), failures=not_loaded)
    if without := recording.derived.wrong_without_restart:
        return Findings(blocked=f"{without}, is wrong as well: see LS201 and LS202")
    if not bounds_weights(recording):
        return Findings(not_claimed="in narrow dtypes weights differ by roundings that are not bounded here")
    if not right_before(recording, first):
        return Findings(blocked="the weights were wrong before the run was resumed: see LS201 and LS202")
    if recording.scenario.evaluate_after:
        return _evaluated(recording, first)
    return _resumed(recording, first)


def _resumed(recording: Recording, first: int) -> Findings:
    """Compare weights after step ``first``, which followed the loading, with those of an uninterrupted run."""
    if is_lossy(recording) and _overflows_after(recording, first):
        return Findings(blocked="gradients are not finite where some of them may be lost on the wire: see LS201")
    findings = compare_weights(recording, range(first + 1, recording.scenario.num_steps))
    schedule = recording.scenario.new_lr_after
    told = _replicas(recording, findings.failures[0].step) if findings.failures else ""
    early, put_back = saved_under_way(recording), overwritten(recording, first)
    if not findings.failures and put_back:
        findings.failures.append(_put_back(recording, first, put_back[0]))
        return findings
    for failure in findings.failures:
        if failure.cause == "schedule_ignored":
            failure.explanation += "; before it was resumed, it followed the schedule"
            failure.hint = "have param_groups be those of the optimizer inside again once its state was loaded"
            continue
        scaled = f"; {failure.explanation}" if failure.cause == "update_scaled" and schedule else ""
        failure.cause, failure.confidence = "resumed_differently", SEEN_ONLY
        failure.explanation = (
            f"after resuming, the weights of {failure.parameter} on rank {failure.rank} are not those of a run that "
            f"was not interrupted{told}{scaled}"
        )
        failure.hint = "save the whole state (parameters, buffers, optimizer), and load it on every rank"
        if scaled:
            failure.hint += "; the learning rate is part of it, wherever step() reads it"
        if first < 0:
            failure.hint += "; before the first step as well, and let state_dict() change nothing"
        if failure.parameter in put_back:
            failure.explanation += f"; {PUT_BACK}"
            failure.hint, failure.confidence = MAKE_AGAIN, 0.9
        if early:
            failure.explanation += "; weights were still on their way when state_dict() was called"
            failure.hint = "have state_dict() wait for what the step has left under way"
    return findings


def _put_back(recording: Recording, first: int, name: str) -> Failure:
    return Failure(
        scenario=recording.scenario.name,
        step=first + 1,
        rank=0,
        parameter=name,
        cause="resumed_differently",
        confidence=0.9,
        explanation=f"in the first step after resuming the weights of {name} are overwritten: {PUT_BACK}",
        hint=MAKE_AGAIN,
    )


def _overflows_after(recording: Recording, first: int) -> bool:
    """Return whether some gradient of a step after ``first`` is infinite or NaN."""
    held = [tensor for rank in recording.ranks for tensor in rank.tensors.values() if tensor.what == "gradient"]
    later = [tensor.values for tensor in held if tensor.step > first]
    return any(values is not None and not np.isfinite(values).all() for values in later)


def _evaluated(recording: Recording, first: int) -> Findings:
    """Compare the evaluation right after loading; ``blocked`` if one before saving was already wrong."""
    findings = Findings()
    for step in recording.scenario.evaluate_after:
        findings = compare_outputs(recording, step)
        if step < first and (findings.failures or findings.blocked):
            return Findings(blocked=findings.blocked or "evaluations were wrong before anything was saved: see LS204")
    for failure in findings.failures:
        failure.cause, failure.confidence = "resumed_differently", SEEN_ONLY
        failure.explanation = (
            f"as soon as everything is loaded, an evaluation on rank {failure.rank} returns {failure.observed}; "
            f"that of a run that was not interrupted returns {failure.expected}"
        )
        failure.hint = "load all that a forward computes with: parameters, buffers, and whatever is a copy of them"
    return findings


def _not_loaded(recording: Recording) -> list[Failure]:
    """Failures for ranks that saved, and then raised when they loaded it or in the optimizer's next step."""
    own = [r for r in recording.ranks if r.notes.get("loading") and (r.outcome or {}).get("error") == "own"]
    later = [rank for rank in recording.ranks if stopped_by_what_it_loaded(recording, rank)]
    return [
        Failure(
            scenario=recording.scenario.name,
            step=recording.scenario.resume_after,
            rank=rank.rank,
            cause="not_loaded",
            confidence=0.9,
            explanation=f"rank {rank.rank} has saved its state, and a fresh replica cannot "
            f"{'take a step with that' if rank in later else 'load that'}: "
            f"{last_words(str((rank.outcome or {}).get('detail')))}",
            hint="let load_state_dict() take what state_dict() returns; if no state is offered, raise in state_dict()",
        )
        for rank in own + later
    ]


def _replicas(recording: Recording, step: int | None) -> str:
    """Whether the replicas are at least equal to one another, as they are if all have loaded too little."""
    if step is None or recording.scenario.world_size == 1:
        return ""
    equal = not compare_across_ranks(recording, "weight", step, cause="", explain=lambda *_: "", hint="").failures
    if equal:
        return "; the replicas are equal to one another: something was saved or loaded nowhere, or changed once loaded"
    return "; the replicas differ from one another, too: it was not loaded alike on all ranks"


CHECK = resume
