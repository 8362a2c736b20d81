"""Uneven inputs: ranks that run out of batches earlier than others change nothing but their share of the gradient.

Claim: inside ``join()`` the ranks that still have data go on, and ranks without data count as zero gradients. When all
ranks have left it, every replica holds the weights of a single process that took the same steps.

Catches: a last step that only some ranks take; a mean over the ranks that happen to be left where the world size was
due, or the reverse; replicas that are not made equal at the end.

Blind to: optimizer state of the ranks that had left (with momentum it lags behind, under torch's DDP as well).

Seen in the wild: pytorch/pytorch#44425 (``no_sync`` with ``join``), deepmodeling/deepmd-kit#5570 (one rank a step
more).

Remedy: on ranks without data, answer the collectives of active ranks with zeros; divide by the world size; at the end,
broadcast from a rank that ran out last.
"""

from __future__ import annotations

from verifier.check import Findings, check
from verifier.judge.agreement import compare_across_ranks
from verifier.judge.arithmetic import own_steps
from verifier.judge.equivalence import blocked_reference
from verifier.judge.out_of_sight import compare_gradients
from verifier.judge.updates import compare_final, not_judged
from verifier.recording import Recording


@check(when=lambda scenario: scenario.uneven)
def uneven_inputs(recording: Recording) -> Findings:
    if reason := blocked_reference(recording):
        return Findings(blocked=reason)
    if reason := own_steps(recording) or not_judged(recording):
        return Findings(not_claimed=reason)
    if compare_gradients(recording).failures:
        return Findings(blocked="gradients were wrong before any rank ran out of data: see LS201")
    step = recording.scenario.num_steps
    findings = compare_final(recording, step)
    if not findings.failures and recording.scenario.world_size > 1:
        agreed = compare_across_ranks(
            recording,
            "final",
            step,
            cause="replicas_diverged",
            explain=lambda rank, other, name: f"after join() rank {rank} holds other bytes of {name} than rank {other}",
            hint="broadcast the weights from a rank that was last, when all have joined",
        )
        findings.comparisons += agreed.comparisons
        findings.failures += agreed.failures
    return findings


CHECK = uneven_inputs
