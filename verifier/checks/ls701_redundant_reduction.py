"""No gradient travels for nothing: in one step, one group reduces each element of each gradient once.

Claim: with tagged gradients the payload of every reduction is read, and no element of a rank's own gradients is found
in two reductions of the same group in one step. No other check sees twice the bytes with the right result (an average
of averages). No group reduces twice as many numbers as are trainable in one step; and if most parameters are frozen, no
more than are trainable, except for padding: zeros up to the next multiple of a power of two, to which buckets and flat
buffers are aligned. A strategy that scatters tensors of one shape in chunks, one to each rank, may pad the last chunk.
A sum in which each number comes from one rank and is zero on all others only hands out what that rank has; it does not
count as a reduction.

Catches: hooks *and* a loop after backward that both reduce; a parameter in two buckets; tied parameters listed twice;
frozen parameters that are reduced as zeros.

Blind to: a second reduction of some parameters' means, after the first; hierarchical schemes, which rightly reduce an
element once in each of several groups; payloads that are compressed or encoded; what an optimizer reduces by itself in
addition to the DDP that is put around the model for it (drive it with ``--driver distributed_optimizer``). A strategy
that sends more than it must, and may, declares ``Contract(disclaims={"efficiency"})``.

Seen in the wild: a class of mistake; Megatron-LM#6660 (a group of one that reduces every micro-batch again).

Remedy: reduce in one place; keep a set of what this step has reduced.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterator, Sequence

import numpy as np

from verifier.check import Findings, check
from verifier.judge.arithmetic import contract_of
from verifier.judge.lanes import lanes
from verifier.judge.packing import parts_of, tag_book
from verifier.recording import REDUCTIONS, Collective, RankRecording, Recording
from verifier.scenario import Scenario
from verifier.tags import Segment, TagBook
from verifier.verdict import Failure

FLOATING = ("float", "bfloat", "complex")
BY_ITSELF = (
    "the optimizer seems to reduce gradients by itself in step(), and so does the DDP that is put around the model for "
    "it: drive it with --driver distributed_optimizer"
)


def _reads(scenario: Scenario) -> bool:
    return scenario.num_micro_batches == 1 and (scenario.tagged or scenario.workload == "oddities")


@check(when=_reads)
def redundant_reduction(recording: Recording) -> Findings:
    findings, book = Findings(), tag_book(recording)
    if recording.scenario.world_size == 1:
        findings.not_claimed = "one rank has nobody to reduce with"
        return findings
    if "efficiency" in contract_of(recording).get("disclaims", ()):
        findings.not_claimed = "the strategy disclaims efficiency"
        return findings
    findings = _judged(recording, book, findings)
    too_much = {failure.cause for failure in findings.failures} == {"reduced_too_much"}
    if too_much and recording.ranks[0].notes.get("driver") == "sharded_optimizer" and _all_in(recording, "step"):
        return Findings(not_claimed=BY_ITSELF)
    return findings


def _all_in(recording: Recording, phase: str) -> bool:
    """Return whether every rank reduces at least as many numbers in ``phase`` as are trained."""
    trained = sum(entry["numel"] for entry in recording.ranks[0].notes.get("parameters", []))
    sent = [sum(c.numel for c in rank.collectives if _adds(c) and c.phase == phase) for rank in recording.ranks]
    return min(sent) >= trained


def _judged(recording: Recording, book: TagBook | None, findings: Findings) -> Findings:
    if not recording.scenario.tagged:
        findings.failures += _weighed(recording, findings)
        if not findings.comparisons and recording.complete:
            findings.not_claimed = "no reduction was seen"
        return findings
    if book is None:
        findings.not_claimed = "tags were rounded on their way: what they name cannot be read"
        return findings
    for rank in recording.ranks:
        findings.failures += _count(recording, rank, book, findings)
    if not findings.failures:  # means that are reduced again have no rank's own tags
        findings.failures += _weighed(recording, Findings(), times=2)
    if not findings.comparisons and recording.complete:
        findings.not_claimed = "no payload of plain gradients was seen"
    return findings


def _adds(collective: Collective) -> bool:
    """Return whether it adds, as reductions of gradients do; a maximum or minimum only compares replicas."""
    return collective.op in REDUCTIONS and (collective.reduce_op or "SUM").upper() not in ("MAX", "MIN")


def _handed_out(recording: Recording) -> Iterator[Collective]:
    """Reductions in which each element is nonzero on at most one rank: a gather, written as a sum with zeros.

    Payloads that are zero on all ranks do not count: that is how frozen parameters travel.
    """
    for lane in lanes(recording):
        for together in zip(*lane.members.values(), strict=False):
            payloads = [one.payload for one in together if _adds(one)]
            if len(payloads) < len(together) or any(p is None or p.size != together[0].numel for p in payloads):
                continue
            num_bringing = np.sum([p != 0 for p in payloads if p is not None], axis=0)
            if num_bringing.max(initial=0) == 1:
                yield from together


def _weighed(recording: Recording, findings: Findings, times: int = 1) -> list[Failure]:
    adding = {rank.rank: [c for c in rank.collectives if _is_weighed(c)] for rank in recording.ranks}
    findings.comparisons += sum(map(len, adding.values()))
    ranks = [rank for rank in recording.ranks if _too_many(recording, rank, adding[rank.rank], _whole, times)]
    if not ranks:  # what is handed out, and padding, would only make it fewer
        return []
    handed_out = set(_handed_out(recording))

    def net(collective: Collective) -> int:
        return 0 if collective in handed_out else collective.numel - _num_padded(collective.payload)

    failures = [f for rank in ranks for f in _too_many(recording, rank, adding[rank.rank], net, times)]
    if recording.ranks[0].notes.get("driver") == "explicit" and failures and _all_in(recording, "backward"):
        for failure in failures:
            failure.confidence = 0.6
            failure.explanation += ", all of them in the backward already; then this loop calls a method that reduces"
            failure.hint = f"if your loop does not call it: --driver native. Else {failure.hint}"
    return failures


def _is_weighed(collective: Collective) -> bool:
    return _adds(collective) and collective.step >= 0 and collective.dtype.startswith(FLOATING)


def _whole(collective: Collective) -> int:
    return collective.numel


def _too_many(
    recording: Recording,
    rank: RankRecording,
    adding: Sequence[Collective],
    numel_of: Callable[[Collective], int],
    times: int,
) -> list[Failure]:
    """Failures for the steps in which a group reduces more floating-point numbers than there are to reduce, and at
    least so many ``times`` their number.
    """
    entries, world_size = rank.notes.get("parameters", []), recording.scenario.world_size
    trainable = sum(entry["numel"] for entry in entries)
    chunks = sum(math.prod(shape) for shape in {tuple(entry["shape"]) for entry in entries})
    allowed = trainable + world_size * len(entries) + 64  # padding; flags, norms and losses
    allowed = max(allowed, times * trainable - 1)
    sent: Counter[tuple[int, str]] = Counter()
    for collective in adding:
        sent[collective.step, collective.group] += numel_of(collective)
    filled = {(collective.step, collective.group) for collective in adding if "scatter" in collective.op}
    return [
        Failure(
            scenario=recording.scenario.name,
            step=step,
            rank=rank.rank,
            expected=f"at most {allowed} numbers",
            observed=f"{numel} numbers",
            cause="reduced_too_much",
            confidence=0.9,
            explanation=f"rank {rank.rank} reduces {numel} numbers in one step; {trainable} are trained",
            hint="reduce what is trained: skip parameters with requires_grad=False, list tied ones once, and average "
            "gradients or weights, not both; or declare Contract(disclaims={'efficiency'})",
        )
        for (step, group), numel in sent.items()
        if numel > allowed + ((world_size - 1) * chunks if (step, group) in filled else 0)
    ]


def _num_padded(payload: np.ndarray | None) -> int:
    """How many zeros of ``payload`` are padding: fewer than 2**k, before a place that 2**k divides, as it divides the
    length.

    Gradients next to them may be zero, too. Zero tensors among others have such a length only by chance, and a payload
    of zeros alone is not padding.
    """
    if payload is None or not payload.any():
        return 0
    edges = np.flatnonzero(np.diff(payload == 0, prepend=False, append=False))  # runs of zeros: begin, end, begin, ...
    aligned = len(payload) & -len(payload)
    return sum(_filling(int(begin), int(end), aligned) for begin, end in zip(edges[::2], edges[1::2], strict=True))


def _filling(begin: int, end: int, aligned: int) -> int:
    """How many zeros of a run are padding: those before the place, in the run or at its end, that the largest power of
    two divides; the power is ``aligned`` at most.
    """
    place = end & -(1 << ((begin ^ end).bit_length() - 1))
    return min(place - begin, min(place & -place, aligned) - 1)


def _count(recording: Recording, rank: RankRecording, book: TagBook, findings: Findings) -> list[Failure]:
    """Failures for gradient segments reduced twice by a group in a step. A reduced payload has no rank's own tags."""
    seen: Counter[tuple[int, str, str, int]] = Counter()
    for collective in rank.collectives:
        if not _adds(collective) or collective.step < 0:
            continue
        parts = parts_of(book, collective, rank.rank) or []
        if _is_constant(parts):
            continue
        for part in parts:
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


def _is_constant(parts: list[Segment]) -> bool:
    """Return whether one number is in all places, and its tag is an accident: a mean magnitude for all, say."""
    numbers = {(part.name, part.start, part.stop) for part in parts}
    return len(parts) > 1 and len(numbers) == 1 and parts[0].stop == parts[0].start + 1


CHECK = redundant_reduction
