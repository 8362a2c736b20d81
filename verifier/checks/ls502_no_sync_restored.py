"""``no_sync`` restored: after an exception has left ``no_sync()``, the next step is synchronised as ever.

Claim: a loop may catch an exception (a batch that does not fit in memory) and go on; its gradients are then those of
the single process. If an optimizer reduces gradients inside its ``step()``, the weights are compared instead; by a rule
of its own, those of the ranks with each other.

Catches: a ``no_sync()`` that sets a flag and resets it after ``yield`` without ``finally``: replicas drift from then
on.

Blind to: exceptions in the middle of a backward; one ``no_sync()`` inside another.

Seen in the wild: a class of mistake; 9 of 14 public wrappers with a ``no_sync()`` break here.

Remedy: ``try: yield`` / ``finally: self.sync = True``.
"""

from __future__ import annotations

from itertools import pairwise

from verifier.check import Findings, check
from verifier.judge.agreement import compare_across_ranks
from verifier.judge.arithmetic import contract_of, own_steps
from verifier.judge.out_of_sight import OUT_OF_SIGHT, TELL_NOTHING, compare_gradients
from verifier.judge.updates import compare_weights
from verifier.recording import Recording


@check(when=lambda scenario: scenario.raise_before is not None)
def no_sync_restored(recording: Recording) -> Findings:
    step = recording.scenario.raise_before
    assert step is not None
    if any(collective.written_in_flight for rank in recording.ranks for collective in rank.collectives):
        return Findings(blocked="a tensor was written to while it was in flight, in this step or another: see LS401")
    gradients = compare_gradients(recording)
    if gradients.not_claimed is OUT_OF_SIGHT:
        return _judge_weights(recording, step)
    if gradients.blocked and gradients.blocked.startswith(TELL_NOTHING):
        return _judge_lockstep(recording, step, gradients.blocked)
    apart = bool(_agree(recording, step - 1).failures)
    wrong = any(f.step != step for f in gradients.failures)
    in_parts = apart and not wrong and bool(contract_of(recording).get("sharded"))  # each is right, no two are alike
    if wrong or (apart and not in_parts):
        return Findings(blocked="gradients were wrong before there was any exception: see LS201")
    if not own_steps(recording) and compare_weights(recording, range(step)).failures:
        return Findings(blocked="weights were wrong before there was any exception: see LS202")
    if in_parts and (unknown := own_steps(recording)):
        return Findings(not_claimed=unknown)
    if not in_parts and _some_have_none(recording, step):
        return Findings(
            blocked="a rank has no gradient where others have one, which no flag of no_sync() does: see LS201"
        )
    findings = Findings() if in_parts else _agree(recording, step)
    for failure in findings.failures:
        failure.confidence = 0.8  # this step might have gone wrong without the exception, too
    if not findings.failures and not own_steps(recording):
        findings.comparisons += gradients.comparisons
        findings.failures += gradients.failures
        findings.blocked = findings.blocked or gradients.blocked
    return findings


def _judge_weights(recording: Recording, step: int) -> Findings:
    """Judge the step by its weights, because gradients are reduced out of sight, inside the optimizer's ``step()``."""
    if unknown := own_steps(recording):
        return Findings(not_claimed=unknown)
    if compare_weights(recording, range(step)).failures:
        return Findings(blocked="weights were wrong before there was any exception: see LS202")
    return compare_weights(recording, range(step, step + 1))


def _judge_lockstep(recording: Recording, step: int, unknown: str) -> Findings:
    """Judge the step by whether replicas stay equal, because weights by a rule of the strategy's own have no standard
    here, and its gradients are reduced out of sight. They were equal before, and moved.
    """
    if _agree(recording, step - 1, "weight").failures:
        return Findings(not_claimed=unknown)
    findings = _agree(recording, step, "weight")
    held = [recording.ranks[0].named("weight", number) for number in range(step + 1)]
    moved = [any(old[name].digest != new[name].digest for name in old.keys() & new) for old, new in pairwise(held)]
    if not findings.failures and all(moved[:-1]) and not moved[-1]:
        return Findings(blocked="no weight moved in the step after the exception")
    return findings


def _some_have_none(recording: Recording, step: int) -> bool:
    """Return whether ranks have gradients of different parameters, which a missing synchronisation does not cause."""
    held = [set(rank.named("gradient", step)) for rank in recording.ranks if rank.completed]
    return any(names != held[0] for names in held)


def _agree(recording: Recording, step: int, what: str = "gradient") -> Findings:
    """Compare across ranks the gradients that optimizers see; they differ if ``step`` was not synchronised."""
    return compare_across_ranks(
        recording,
        what,
        step,
        cause="no_sync_not_restored",
        explain=lambda rank, other, name: (
            f"after an exception had left no_sync(), the next step was not synchronised: "
            f"rank {rank}'s {what} of {name} is not rank {other}'s"
        ),
        hint="restore the flag in a finally block",
    )


CHECK = no_sync_restored
