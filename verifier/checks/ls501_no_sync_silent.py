"""Silence under ``no_sync``: micro-batches that only accumulate start no reduction.

Claim: a backward inside ``no_sync()`` leaves gradients local; K micro-batches cost the communication of one.

Catches: a ``no_sync()`` that does nothing, or whose flag some hook does not read: right numbers, K times the bytes.

Blind to: what a forward reduces or sends (means of buffers, synchronised norms), which costs K times as much but is no
gradient; gathers and messages of strategies whose forwards need them anyway, as with sharded parameters; gathers of
integer codes; up to eight numbers that hold no tags, such as a logged loss; strategies without a ``no_sync()``.

Seen in the wild: huggingface/accelerate#2790.

Remedy: read the flag that ``no_sync()`` sets in every place that starts a reduction.
"""

from __future__ import annotations

from verifier.check import Findings, check
from verifier.judge.arithmetic import contract_of
from verifier.judge.packing import holds_figures
from verifier.recording import RECEIVES, REDUCTIONS, SENDS, Collective, RankRecording, Recording
from verifier.scenario import Scenario
from verifier.verdict import Failure

GATHERS = {
    *("allgather_", "_allgather_base_", "allgather_into_tensor_coalesced_", "allgather_coalesced_"),
    *("gather_", "gather_into_tensor_"),
}
EXCHANGES = frozenset({*GATHERS, "alltoall_", "alltoall_base_", *SENDS, *RECEIVES})
HANDING_OUT = frozenset({"broadcast_", "scatter_"})
FLOATING = ("float", "bfloat", "complex")


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
        reduced = [c for c in rank.collectives if c.no_sync and c.op in REDUCTIONS and c.phase != "forward"]
        if loud := [c for c in reduced if not holds_figures(recording, c, rank.rank)]:
            findings.failures.append(_failure(recording, rank, loud, "reduction"))
        elif loud := _gathered(recording, rank):
            findings.failures.append(_failure(recording, rank, loud, "exchange"))
    return findings


def _gathered(recording: Recording, rank: RankRecording) -> list[Collective]:
    """Exchanges in a silent backward, if the strategy's forwards need none: these must carry gradients."""
    if contract_of(recording).get("sharded"):
        return []
    several = [c for c in rank.collectives if c.dtype.startswith(FLOATING) and c.numel > 1]
    for kind in (EXCHANGES, HANDING_OUT):
        exchanged = [c for c in several if c.op in kind]
        loud = [c for c in exchanged if c.no_sync and c.phase == "backward"]
        if loud and not any(c.phase == "forward" for c in exchanged):
            return loud
    return []


def _failure(recording: Recording, rank: RankRecording, loud: list[Collective], what: str) -> Failure:
    first = loud[0]
    return Failure(
        scenario=recording.scenario.name,
        step=first.step,
        rank=rank.rank,
        expected=f"no {what}",
        observed=f"{len(loud)} {what}s, the first {first.describe()}",
        cause="no_sync_ignored",
        confidence=1.0,
        explanation=f"rank {rank.rank} starts {first.describe()} in {first.phase} of micro-batch {first.micro}, inside "
        "no_sync()",
        hint="let every hook ask the flag that no_sync() sets before it starts a reduction",
    )


CHECK = no_sync_silent
