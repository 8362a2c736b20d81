"""Evaluation equivalence: a forward in evaluation mode returns what the single process returns for the same rows.

Claim: a loop may validate after any step, and what it measures is the model that is trained: each rank's output is that
of the single process with its weights of that moment.

Catches: an evaluated copy that was never updated from the trained model, or only once; weights that are gathered for
training only; an evaluation path that leaves something out.

Blind to: what changes with the mode (dropout, statistics), which the model here does not have; strategies whose weights
rightly differ from the single process's (``lossy``, ``average="sum"``, an update rule of their own).

Seen in the wild: a class of mistake.

Remedy: evaluate through the module that is trained, or update the copy after each step.
"""

from __future__ import annotations

from dataclasses import replace

from verifier.check import Findings, check
from verifier.judge.evaluated import compare_evaluation
from verifier.recording import Recording


@check(when=lambda scenario: bool(scenario.evaluate_after))
def evaluation_equivalence(recording: Recording) -> Findings:
    """Compare evaluations up to the first that is wrong or cannot be compared; later ones follow from it."""
    comparisons, margins = 0, []
    for step in recording.scenario.evaluate_after:
        findings = compare_evaluation(recording, step)
        comparisons += findings.comparisons
        margins += [] if findings.margin is None else [findings.margin]
        if findings.failures or findings.blocked or findings.not_claimed:
            break
    return replace(findings, comparisons=comparisons, margin=max(margins, default=None))


CHECK = evaluation_equivalence
