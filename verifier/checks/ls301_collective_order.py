"""Collective order: the n-th collective of every rank is the same operation on the same parameters.

Claim: per group, all members issue the same operations in the same order, with equal dtype, size, reduce operation and
root. If members send different amounts, each sends what the other expects. The n-th message sent from one rank to
another under a tag is received as the n-th, with its dtype and size; over gloo, as over MPI, there may be room for more
than is sent. Where gradients are tagged, the payload of every reduction holds the same elements of the same parameters
at the same offsets on every rank, compared by *name*.

Catches: buckets filled in the order in which gradients arrive; parameters skipped on the ranks that did not use
them, if the next has another size (if the sizes are equal, LS201 finds whose gradients were added up); a collective too
few or too many on one rank, also if the others then hang; mismatched dtypes, which gloo reinterprets without an error.

Blind to: order between different groups; a few numbers too many at the end, in a group that carries nothing else (a
thread that watches, and is still at work when all ranks have ended); payloads that do not hold plain gradients
(compressed or encoded); what a rank that raised or died would have done next; what travels by other means than
torch.distributed's collectives and messages (its store, files, MPI), where only the numbers can show a mistake.

Seen in the wild: ray-project/ray#59544 and OpenTSLM#49 (gradients that are None are skipped, so the next parameter
slides into their place); pytorch/pytorch#72843; the bucketed wrapper of many tutorials.

Remedy: decide before the first backward, from what is equal on all ranks, which gradients travel together and in which
order; launch strictly in that order, with zeros for parameters that a rank did not use.
"""

from __future__ import annotations

from itertools import combinations, zip_longest
from typing import Any

from verifier.check import Findings, check
from verifier.judge.lanes import Channel, Lane, channels, lanes
from verifier.judge.packing import FEW_FIGURES, parts_of, tag_book
from verifier.recording import REDUCTIONS, Collective, Recording
from verifier.tags import Segment, TagBook, first_clash
from verifier.verdict import Failure

SAME_ORDER = "issue the same collectives in the same order on every rank"


@check
def collective_order(recording: Recording) -> Findings:
    findings = Findings()
    if recording.scenario.world_size == 1:
        findings.not_claimed = "one rank has no other to keep in order with"
        return findings
    if recording.complete and not any(rank.collectives for rank in recording.ranks):
        findings.not_claimed = "no collective was seen: what went from rank to rank went another way, if anything did"
    book = tag_book(recording)
    for lane in lanes(recording):
        _compare_lane(recording, lane, book, findings)
    for channel in channels(recording):
        _compare_channel(recording, channel, findings)
    return findings


def _compare_lane(recording: Recording, lane: Lane, book: TagBook | None, findings: Findings) -> None:
    """Compare each member's sequence with the standard's; the first difference on a rank ends its comparison.

    The standard is the lowest rank that finished, because its sequence is whole; if none did, the longest sequence.
    """
    ended = [rank for rank in lane.members if recording.ranks[rank].completed]
    standard = min(ended) if ended else max(sorted(lane.members), key=lambda rank: len(lane.members[rank]))
    before = len(findings.failures)
    for rank in sorted(lane.members.keys() - {standard}):
        for place, (mine, theirs) in enumerate(zip_longest(lane.members[rank], lane.members[standard])):
            if mine is None or theirs is None:
                # A rank that finished will issue no more; one that hangs, raised or died might have.
                if recording.ranks[rank if mine is None else standard].completed and not _is_a_watch(recording, lane):
                    findings.failures.append(_missing(recording, rank, standard, place, mine, theirs))
                break
            findings.comparisons += 1
            failure = _compare_pair(recording, rank, standard, mine, theirs, book)
            if failure is not None:
                findings.failures.append(failure)
                break
    if len(findings.failures) == before:  # the sequences agree, so the n-th calls belong together
        for row in zip(*lane.members.values(), strict=False):
            _compare_amounts(recording, dict(zip(lane.members, row, strict=True)), findings)


def _is_a_watch(recording: Recording, lane: Lane) -> bool:
    """Return whether all ranks ended, and this group carried a few numbers at a time and nothing else.

    Nobody waited for what is one too many, so a thread issued it beside the training.
    """
    others = any(rank.collectives and any(c.group != lane.group for c in rank.collectives) for rank in recording.ranks)
    few = all(call.numel <= FEW_FIGURES for calls in lane.members.values() for call in calls)
    return recording.complete and others and few and all(lane.members.values())


def _compare_pair(
    recording: Recording, rank: int, standard: int, mine: Collective, theirs: Collective, book: TagBook | None
) -> Failure | None:
    if mine.signature != theirs.signature:
        return _failure(
            recording,
            rank,
            mine,
            expected=theirs.describe(),
            observed=mine.describe(),
            explanation=f"the same collective is {theirs.describe()} on rank {standard} "
            f"and {mine.describe()} on rank {rank}",
        )
    if book is None or mine.op not in REDUCTIONS:
        return None
    my_parts, their_parts = parts_of(book, mine, rank), parts_of(book, theirs, standard)
    if my_parts is None or their_parts is None:
        return None
    clash = first_clash(my_parts, their_parts)
    if clash is None:
        return None
    here, there = clash
    return _failure(
        recording,
        rank,
        mine,
        parameter=here.name,
        expected=_list(their_parts),
        observed=_list(my_parts),
        cause="bucket_contents_differ",
        explanation=f"a collective adds {here.describe()} of rank {rank} to {there.describe()} of rank {standard}",
        hint="fix what shares a bucket, and in which order, before the first backward; do not fill by arrival",
    )


def _compare_amounts(recording: Recording, row: dict[int, Collective], findings: Findings) -> None:
    """Compare what each member sends with what the other expects, if members send different amounts."""
    for one, other in [*combinations(row, 2), *((b, a) for a, b in combinations(row, 2))]:
        sender, receiver = row[one], row[other]
        if sender.sends is None or receiver.receives is None or sender.ranks is None:
            continue
        findings.comparisons += 1
        sent = sender.sends[sender.ranks.index(other)]
        expected = receiver.receives[sender.ranks.index(one)]
        if sent != expected:
            findings.failures.append(
                _failure(
                    recording,
                    other,
                    receiver,
                    expected=f"{sent} elements from rank {one}",
                    observed=f"room for {expected}",
                    explanation=f"in this {receiver.op.strip('_')} rank {one} sends {sent} "
                    f"elements to rank {other}, which expects {expected}",
                    hint="agree before the exchange on how much each rank sends",
                )
            )
            return


def _compare_channel(recording: Recording, channel: Channel, findings: Findings) -> None:
    """Compare the n-th message sent with the n-th received. A surplus is no failure if a rank did not finish."""
    source, target = channel.address.source, channel.address.target
    for place, (sent, received) in enumerate(zip_longest(channel.sent, channel.received)):
        if sent is None or received is None:
            call, whose, other = (sent, source, target) if received is None else (received, target, source)
            if recording.complete and not channel.guessed:
                findings.failures.append(
                    _failure(
                        recording,
                        whose,
                        call,
                        expected=f"its counterpart on rank {other}",
                        observed="none",
                        explanation=f"{call.describe()} of rank {whose}, number {place} from rank {source} to rank "
                        f"{target} under tag {channel.address.tag}, has no counterpart on rank {other}",
                        hint="let every send have its receive, on the same pair of ranks and under the same tag",
                    )
                )
            return
        findings.comparisons += 1
        with_room = recording.scenario.backend == "gloo" and sent.numel < received.numel
        if sent.dtype != received.dtype or not (with_room or sent.numel == received.numel):
            findings.failures.append(
                _failure(
                    recording,
                    target,
                    received,
                    expected=sent.describe(),
                    observed=received.describe(),
                    explanation=f"message {place} from rank {source} to rank {target} is {sent.numel} {sent.dtype}, "
                    f"and is received as {received.numel} {received.dtype}",
                    hint="receive with the size and dtype of what is sent"
                    + (", and name the source: another rank may be the first to arrive" * ("any" in received.op)),
                )
            )
            return


def _missing(
    recording: Recording, rank: int, standard: int, place: int, mine: Collective | None, theirs: Collective | None
) -> Failure:
    extra = theirs or mine
    assert extra is not None
    who, other = (standard, rank) if mine is None else (rank, standard)
    if recording.ranks[who].completed:
        told = f"rank {who} issues {extra.describe()} as number {place}, rank {other} issues no more"
    else:
        told = f"rank {other} finished, and rank {who} waits in {extra.describe()}, number {place}, which rank {other} "
        told += "never issued"
    return _failure(
        recording,
        rank,
        extra,
        placed=False,
        expected=theirs.describe() if theirs else "no further collective",
        observed=mine.describe() if mine else "no further collective",
        explanation=told,
    )


def _failure(
    recording: Recording,
    rank: int,
    call: Collective,
    *,
    placed: bool = True,
    cause: str = "collectives_differ",
    hint: str = SAME_ORDER,
    **said: Any,
) -> Failure:
    """A failure of ``rank`` in ``call``; ``placed`` if the call is the rank's own and so has a place in its step."""
    in_step = call.step >= 0
    return Failure(
        scenario=recording.scenario.name,
        step=call.step if in_step else None,
        rank=rank,
        bucket=recording.ranks[rank].place_in_step(call) if in_step and placed else None,
        cause=cause,
        confidence=1.0,
        hint=hint,
        **said,
    )


def _list(parts: list[Segment]) -> str:
    return ", ".join(part.describe() for part in parts)


CHECK = collective_order
