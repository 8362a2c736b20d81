"""Unfinished work: every reduction that was started in a step is waited for before the step ends.

Claim: a gradient is used only after its collective has finished, so no reduction may be pending when the optimizer has
stepped.

Catches: handles that are dropped or overwritten; a wait for the last bucket only; a flush that is forgotten.

Blind to: gathers and broadcasts, which may rightly go on into the next forward; single numbers (a logged loss may be
waited for a step later; a norm or a flag that is read too early shows in the weights), and up to eight that hold no
tags; a wait on another thread.

Seen in the wild: microsoft/DeepSpeed#5545 and EleutherAI/gpt-neox#1004 (buffers reused before their reduction ended).

Remedy: keep every handle that ``async_op=True`` returns, and wait for all of them before ``optimizer.step()``.
"""

from __future__ import annotations

from verifier.check import Findings, check
from verifier.judge.packing import holds_figures
from verifier.recording import REDUCTIONS, Collective, RankRecording, Recording
from verifier.verdict import Failure

PHASES = ("forward", "backward", "before_step", "step")


@check
def unfinished_work(recording: Recording) -> Findings:
    findings = Findings()
    for rank in recording.ranks:
        for collective in rank.collectives:
            if collective.op not in REDUCTIONS or collective.phase not in PHASES:
                continue
            if holds_figures(recording, collective, rank.rank):
                continue
            ended = rank.step_ended.get(collective.step)
            if ended is None:  # the rank did not finish this step
                continue
            findings.comparisons += 1
            if collective.landed is None or collective.landed > ended:
                findings.failures.append(_failure(recording, rank, collective))
    if not findings.comparisons and recording.complete:
        findings.not_claimed = "no reduction was seen in a step"
    return findings


def _failure(recording: Recording, rank: RankRecording, collective: Collective) -> Failure:
    late = "is waited for after it" if collective.landed is not None else "is never waited for"
    return Failure(
        scenario=recording.scenario.name,
        step=collective.step,
        rank=rank.rank,
        bucket=rank.place_in_step(collective),
        expected="a wait before the step ends",
        observed="none" if collective.landed is None else "a later one",
        cause="unfinished_work",
        confidence=1.0,
        explanation=f"{collective.describe()}, started in {collective.phase} of step {collective.step}, {late}",
        hint="keep every handle and wait for it before optimizer.step()",
    )


CHECK = unfinished_work
