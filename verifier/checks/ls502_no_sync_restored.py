"""``no_sync`` restored: after an exception has left ``no_sync()``, the next step is synchronised as ever.

Claim: a loop may catch an exception (a batch that does not fit in memory) and go on; its gradients are then those of
the single process.

Catches: a ``no_sync()`` that sets a flag and resets it after ``yield`` without ``finally``: replicas drift from then
on.

Blind to: exceptions in the middle of a backward.

Seen in the wild: a class of mistake; 9 of 14 public wrappers with a ``no_sync()`` break here.

Remedy: ``try: yield`` / ``finally: self.sync = True``.
"""

from __future__ import annotations

from verifier.check import Findings, check
from verifier.equivalence import compare_gradients
from verifier.recording import Recording


@check(when=lambda scenario: scenario.raise_before is not None)
def no_sync_restored(recording: Recording) -> Findings:
    findings = compare_gradients(recording)
    assert recording.scenario.raise_before is not None
    if any(f.step is not None and f.step < recording.scenario.raise_before for f in findings.failures):
        return Findings(blocked="the gradients were wrong before there was any exception: see LS201")
    for failure in findings.failures:
        if failure.cause == "not_synchronised":
            failure.cause, failure.confidence = "no_sync_not_restored", 1.0
            failure.explanation += "; before it an exception had left no_sync()"
            failure.hint = "restore the flag in a finally block"
    return findings


CHECK = no_sync_restored
