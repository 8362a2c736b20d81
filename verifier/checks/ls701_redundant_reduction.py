"""No gradient travels twice: in one step, one group reduces each element of each gradient once.

Claim: with tagged gradients the payload of every reduction is read, and no element is found in two reductions of the
same group in one step. Twice the bytes with the right result (an average of averages) is otherwise seen by nobody.

Catches: hooks *and* a loop after backward that both reduce; a parameter in two buckets; tied parameters listed twice.

Blind to: hierarchical schemes, which reduce an element once in each of several groups, and rightly; payloads that are
compressed or encoded.

Seen in the wild: a class of mistake; Megatron-LM#6660 (a group of one that reduces every micro-batch again).

Remedy: reduce in one place; keep a set of what this step has reduced.
"""

from __future__ import annotations

from collections import Counter

from verifier.check import Findings, check
from verifier.packing import tag_book
from verifier.recording import REDUCTIONS, RankRecording, Recording
from verifier.tags import TagBook
from verifier.verdict import Failure


@check(when=lambda scenario: scenario.tagged and scenario.num_micro_batches == 1)
def redundant_reduction(recording: Recording) -> Findings:
    findings, book = Findings(), tag_book(recording)
    if recording.scenario.world_size == 1:
        findings.not_claimed = "one rank has nobody to reduce with"
        return findings
    if book is None:
        findings.blocked = "the parameters were not recorded"
        return findings
    for rank in recording.ranks:
        findings.failures += _count(recording, rank, book, findings)
    if not findings.comparisons and recording.complete:
        findings.not_claimed = "no payload of plain gradients was seen"
    return findings


def _count(recording: Recording, rank: RankRecording, book: TagBook, findings: Findings) -> list[Failure]:
    """Segments of plain gradients, by step and group. A payload that was reduced already carries no rank's own tags."""
    seen: Counter[tuple[int, str, str, int]] = Counter()
    for collective in rank.collectives:
        if collective.op not in REDUCTIONS or collective.payload is None or collective.step < 0:
            continue
        for part in book.decode(collective.payload, rank.rank) or []:
            findings.comparisons += 1
            seen[collective.step, collective.group, part.name, part.start] += 1
    return [
        Failure(
            scenario=recording.scenario.name,
            step=step,
            rank=rank.rank,
            parameter=name,
            expected="one reduction",
            observed=f"{times} reductions",
            cause="reduced_twice",
            confidence=1.0,
            explanation=f"rank {rank.rank} sends its gradient of {name} into {times} reductions of one step",
            hint="reduce each gradient in one place",
        )
        for (step, _, name, _), times in seen.items()
        if times > 1
    ]


CHECK = redundant_reduction
