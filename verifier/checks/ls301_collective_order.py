"""Collective order: the n-th collective of every rank is the same operation on the same parameters.

Claim: per group, all ranks issue the same operations in the same order, with equal dtype, size, reduce operation and
root; and where gradients are tagged, the payload of every reduction holds the same elements of the same parameters
at the same offsets on every rank, by *name*.

Catches: buckets filled in the order in which gradients arrive; parameters skipped on the ranks that did not use
them; a collective too few or too many on one rank; mismatched dtypes, which gloo reinterprets without a word.

Blind to: order between different groups, and to payloads that do not hold plain gradients (compressed, or encoded).

Seen in the wild: ray-project/ray#59544 and OpenTSLM#49 (gradients that are None are skipped, so the next parameter
slides into their place); pytorch/pytorch#72843; the bucketed wrapper of many tutorials.

Remedy: decide before the first backward, from what is equal on all ranks, what travels together and in which order;
launch strictly in that order, with zeros for what a rank did not use.
"""

from __future__ import annotations

from collections import defaultdict
from itertools import zip_longest

from verifier.check import Findings, check
from verifier.packing import tag_book
from verifier.recording import REDUCTIONS, Collective, Recording
from verifier.tags import Segment, TagBook
from verifier.verdict import Failure


@check
def collective_order(recording: Recording) -> Findings:
    findings = Findings()
    if recording.scenario.world_size == 1:
        findings.not_claimed = "one rank has no other to keep in order with"
        return findings
    by_group: defaultdict[str, dict[int, list[Collective]]] = defaultdict(dict)
    for rank in recording.ranks:
        for collective in rank.collectives:
            by_group[collective.group].setdefault(rank.rank, []).append(collective)
    if recording.complete and not by_group:
        findings.blocked = "no collective was seen: nothing can have been synchronised through torch.distributed"
    book = tag_book(recording)
    for members in by_group.values():
        _compare_group(recording, members, book, findings)
    return findings


def _compare_group(
    recording: Recording, members: dict[int, list[Collective]], book: TagBook | None, findings: Findings
) -> None:
    """Compare each rank's sequence with the lowest member's; the first difference on a rank ends its comparison."""
    standard = min(members)
    for rank in sorted(members):
        if rank == standard:
            continue
        for place, (mine, theirs) in enumerate(zip_longest(members[rank], members[standard])):
            if mine is None or theirs is None:
                if recording.complete:
                    findings.failures.append(_missing(recording, rank, standard, place, mine, theirs))
                break
            findings.comparisons += 1
            failure = _compare_pair(recording, rank, standard, mine, theirs, book)
            if failure is not None:
                findings.failures.append(failure)
                break


def _compare_pair(
    recording: Recording, rank: int, standard: int, mine: Collective, theirs: Collective, book: TagBook | None
) -> Failure | None:
    if mine.signature != theirs.signature:
        return Failure(
            scenario=recording.scenario.name,
            step=mine.step if mine.step >= 0 else None,
            rank=rank,
            bucket=_place_in_step(recording, rank, mine),
            expected=theirs.describe(),
            observed=mine.describe(),
            cause="collectives_differ",
            confidence=1.0,
            explanation=f"collective {mine.seq} is {theirs.describe()} on rank {standard} "
            f"and {mine.describe()} on rank {rank}",
            hint="issue the same collectives in the same order on every rank",
        )
    if book is None or mine.op not in REDUCTIONS or mine.payload is None or theirs.payload is None:
        return None
    my_parts, their_parts = book.decode(mine.payload, rank), book.decode(theirs.payload, standard)
    if my_parts is None or their_parts is None:
        return None
    clash = _first_clash(my_parts, their_parts)
    if clash is None:
        return None
    here, there = clash
    return Failure(
        scenario=recording.scenario.name,
        step=mine.step,
        rank=rank,
        parameter=here.name,
        bucket=_place_in_step(recording, rank, mine),
        expected=_list(their_parts),
        observed=_list(my_parts),
        cause="bucket_contents_differ",
        confidence=1.0,
        explanation=f"collective {mine.seq} adds {here.describe()} of rank {rank} to {there.describe()} "
        f"of rank {standard}",
        hint="fix what shares a bucket, and in which order, before the first backward; do not fill by arrival",
    )


def _first_clash(mine: list[Segment], theirs: list[Segment]) -> tuple[Segment, Segment] | None:
    """The first two segments that lie on the same offsets and are not the same elements."""
    for here in mine:
        for there in theirs:
            begin = max(here.offset, there.offset)
            end = min(here.offset + here.stop - here.start, there.offset + there.stop - there.start)
            aligned = here.name == there.name and here.start - here.offset == there.start - there.offset
            if begin < end and not aligned:
                return here, there
    return None


def _list(parts: list[Segment]) -> str:
    return ", ".join(part.describe() for part in parts)


def _place_in_step(recording: Recording, rank: int, collective: Collective) -> int | None:
    if collective.step < 0:
        return None
    return sum(c.step == collective.step and c.seq < collective.seq for c in recording.ranks[rank].collectives)


def _missing(
    recording: Recording, rank: int, standard: int, place: int, mine: Collective | None, theirs: Collective | None
) -> Failure:
    extra = theirs or mine
    assert extra is not None
    who, other = (standard, rank) if mine is None else (rank, standard)
    return Failure(
        scenario=recording.scenario.name,
        step=extra.step if extra.step >= 0 else None,
        rank=rank,
        expected=theirs.describe() if theirs else "no further collective",
        observed=mine.describe() if mine else "no further collective",
        cause="collectives_differ",
        confidence=1.0,
        explanation=f"rank {who} issues {extra.describe()} as number {place}, rank {other} issues no more",
        hint="issue the same collectives in the same order on every rank",
    )


CHECK = collective_order
