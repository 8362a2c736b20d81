"""Evaluation equivalence: a forward in evaluation mode returns what the single process returns for the same rows.

Claim: after any step a loop may validate, and what it measures is the model that is trained: each rank's output is
that of the single process with the weights of that moment.

Catches: a copy that is evaluated and was not brought up to date, or was once and never again; weights that are gathered
for training alone; a path for evaluation that leaves something out.

Blind to: what changes with the mode (dropout, statistics), which the model here does not have; strategies whose weights
are rightly not the single process's (``lossy``, ``average="sum"``, an update rule of their own).

Seen in the wild: a class of mistake.

Remedy: evaluate through the module that is trained, or bring the copy up to date after each step.
"""

from __future__ import annotations

from dataclasses import replace

from verifier.check import Findings, check
from verifier.judge.evaluated import compare_evaluation
from verifier.recording import Recording


@check(when=lambda scenario: bool(scenario.evaluate_after))
def evaluation_equivalence(recording: Recording) -> Findings:
    """The first evaluation that is wrong is told, or cannot be compared; later ones follow from it."""
    comparisons, margins = 0, []
    for step in recording.scenario.evaluate_after:
        findings = compare_evaluation(recording, step)
        comparisons += findings.comparisons
        margins += [] if findings.margin is None else [findings.margin]
        if findings.failures or findings.blocked or findings.not_claimed:
            break
    return replace(findings, comparisons=comparisons, margin=max(margins, default=None))


CHECK = evaluation_equivalence
