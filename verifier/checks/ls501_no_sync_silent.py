"""Silence under ``no_sync``: micro-batches that only accumulate start no reduction.

Claim: a backward inside ``no_sync()`` leaves gradients local; K micro-batches cost the communication of one.

Catches: a ``no_sync()`` that does nothing, or is not asked by every hook: right numbers, K times the bytes.

Blind to: gathers and messages, which forwards of sharded parameters need anyway; single numbers, such as a loss for the
log; strategies without a ``no_sync()``.

Seen in the wild: huggingface/accelerate#2790; facebookresearch/fairscale#1041 (buffers broadcast under no_sync).

Remedy: ask the flag that ``no_sync()`` sets in every place that starts a reduction.
"""

from __future__ import annotations

from verifier.check import Findings, check
from verifier.recording import REDUCTIONS, Recording
from verifier.scenario import Scenario
from verifier.verdict import Failure


def accumulates(scenario: Scenario) -> bool:
    return scenario.num_micro_batches > 1 and scenario.use_no_sync and not scenario.forwards_first


@check(when=accumulates)
def no_sync_silent(recording: Recording) -> Findings:
    findings = Findings()
    if not recording.ranks[0].notes.get("has_no_sync"):
        findings.not_claimed = "the strategy has no no_sync()"
        return findings
    for rank in recording.ranks:
        findings.comparisons += len(rank.losses) * (recording.scenario.num_micro_batches - 1)
        reductions = (c for c in rank.collectives if c.no_sync and c.op in REDUCTIONS)
        loud = [c for c in reductions if not c.is_a_figure]
        if loud:
            first = loud[0]
            findings.failures.append(
                Failure(
                    scenario=recording.scenario.name,
                    step=first.step,
                    rank=rank.rank,
                    expected="no reduction",
                    observed=f"{len(loud)} reductions, the first {first.describe()}",
                    cause="no_sync_ignored",
                    confidence=1.0,
                    explanation=f"rank {rank.rank} starts {first.describe()} in {first.phase} of micro-batch "
                    f"{first.micro}, inside no_sync()",
                    hint="let every hook ask the flag that no_sync() sets before it starts a reduction",
                )
            )
    return findings


CHECK = no_sync_silent
