"""Weight lockstep: after every optimizer step all replicas hold the same weights, to the byte.

Claim: replicas that start equal and apply the same update stay equal. No rounding is allowed for, because every rank
adds the same numbers in the same way. Each trainable parameter is compared by digest (xxh3_128) after each step.
Weights that arrive with the next forward, as when the workers of a parameter server fetch them, count as that step's.

Catches: a parameter or bucket left out of synchronisation; a reduction that gives ranks different results; clipping,
scaling or skipping a step decided by one rank alone; weights changed outside the optimizer.

Blind to: mistakes that all replicas make alike (a sum where a mean was due, a lost micro-batch): see LS201.

Seen in the wild: microsoft/DeepSpeed#1801 (replicated LayerNorm drifted for days while training BLOOM-176B);
huggingface/trl#7245 (25 of 25 parameters differed across ranks, CI only looked at the exit code).

Remedy: look at the first step and parameter named; if the parameter's gradient was not synchronised, LS201 says so.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from verifier.check import Findings, check
from verifier.judge.arithmetic import contract_of
from verifier.judge.comparison import odd_ones_out
from verifier.judge.diagnosis import SEEN_ONLY
from verifier.judge.late_tags import equal_on_arrival, tagged_too_late
from verifier.judge.movement import rests
from verifier.lines import STOPPED_AFTER
from verifier.marker import holds_poison
from verifier.recording import Recording, Tensor
from verifier.verdict import Failure

ROUNDINGS = 8  # of the largest element
IN_FLIGHT = (
    "; it holds the marker that fills a tensor while its collective is in flight",
    "call work.wait() before the step that reads what the collective works on",
)
FETCHED_LATER = "say Contract(sharded=True)"
FETCHED_HERE = "those of modules that it does not run as well"


@check
def weight_lockstep(recording: Recording) -> Findings:
    findings = Findings()
    if recording.scenario.world_size == 1:
        findings.not_claimed = "one rank has no other to be in lockstep with"
        return findings
    if reason := tagged_too_late(recording):
        findings.not_claimed = reason
        return findings
    if not recording.scenario.same_start and not _begin_alike(recording):
        findings.not_claimed = "the replicas were not equal at the start: see LS001"
        return findings
    last = recording.ranks[0].notes.get(STOPPED_AFTER, recording.scenario.num_steps - 1)
    names = [name for name in recording.parameter_names if name not in equal_on_arrival(recording)]
    for step in range(last + 1):
        failures = [f for name in names for f in _compare(recording, step, name, findings)]
        findings.failures += failures
        if failures:  # later steps only repeat it
            break
    return findings


def _begin_alike(recording: Recording) -> bool:
    """Return whether the first forward found the same weights on all ranks, and all of them were recorded."""
    held = [[rank.tensor("weight", -1, name) for name in recording.parameter_names] for rank in recording.ranks]
    found = {tuple(None if tensor is None else tensor.digest for tensor in tensors) for tensors in held}
    return len(found) == 1 and None not in found.pop()


def _compare(recording: Recording, step: int, name: str, findings: Findings) -> list[Failure]:
    tensors = {r.rank: r.tensor("weight", step, name) for r in recording.ranks}
    present = {rank: t for rank, t in tensors.items() if t is not None}
    if len(present) < 2:
        findings.blocked = f"fewer than two ranks recorded their weights after step {step}"
        return []
    if len(present) < len(tensors) and not contract_of(recording).get("sharded"):
        absent = next(rank for rank in tensors if rank not in present)
        findings.blocked = f"rank {absent} shows no {name} after step {step}"
    findings.comparisons += len(present) - 1
    odd, majority = odd_ones_out({rank: t.digest for rank, t in present.items()})
    standard = next(rank for rank in present if rank not in odd)
    return [_failure(recording, step, name, rank, standard, present, majority) for rank in odd]


def _failure(
    recording: Recording,
    step: int,
    name: str,
    rank: int,
    standard: int,
    tensors: dict[int, Tensor],
    majority: bool,
) -> Failure:
    index, expected, observed = _first_difference(tensors[rank], tensors[standard])
    among = "" if majority else f" (no majority: rank {standard} is taken as the standard)"
    behind, hint = IN_FLIGHT if _in_flight(tensors.values()) else _behind(recording, step, name, rank, standard)
    return Failure(
        scenario=recording.scenario.name,
        step=step,
        rank=rank,
        parameter=name,
        index=index,
        expected=expected,
        observed=observed,
        cause="replicas_diverged",
        confidence=SEEN_ONLY,
        explanation=f"after step {step} rank {rank} holds other bytes of {name} than rank {standard}{among}{behind}",
        hint=hint,
    )


def _in_flight(tensors: Iterable[Tensor]) -> bool:
    return any(tensor.values is not None and holds_poison(tensor.values) for tensor in tensors)


def _first_difference(mine: Tensor, theirs: Tensor) -> tuple[list[int] | None, str | None, str | None]:
    """The first differing index, the value in ``theirs``, the value in ``mine``; only the kinds, if these differ."""
    kinds = [f"{tensor.dtype} of shape {list(tensor.shape)}" for tensor in (theirs, mine)]
    if kinds[0] != kinds[1]:
        return None, kinds[0], kinds[1]
    if mine.values is None or theirs.values is None or not mine.values.size:
        return None, None, None
    observed, expected = mine.values, theirs.values
    as_bytes = [np.ascontiguousarray(values).view(np.uint8).reshape(values.size, -1) for values in (observed, expected)]
    if as_bytes[0].shape != as_bytes[1].shape:  # one was recorded in a wider dtype
        return None, None, None
    flat = int(np.argmax((as_bytes[0] != as_bytes[1]).any(axis=1)))
    index = [int(i) for i in np.unravel_index(flat, observed.shape)]
    return index, repr(expected.flat[flat].item()), repr(observed.flat[flat].item())


def _behind(recording: Recording, step: int, name: str, rank: int, standard: int) -> tuple[str, str]:
    """How the two ranks' gradients of this step explain the difference, and what to do about it."""
    mine, theirs = (recording.ranks[r].tensor("gradient", step, name) for r in (rank, standard))
    if step < 0 or mine is None or theirs is None or mine.values is None or theirs.values is None:
        return "", "see LS201 for the gradient behind it, and LS001 for the start"
    if mine.digest == theirs.digest and (resting := _resting(recording, step, name, rank, standard)) is not None:
        fetched = FETCHED_HERE if contract_of(recording).get("sharded") else FETCHED_LATER
        return (
            f"; their gradients are the same, and on rank {resting} the weights did not move",
            "step on every rank, or send weights to those that did not; where those fetch them in the next forward, "
            + fetched,
        )
    if mine.digest == theirs.digest:
        return (
            "; their gradients are the same, so it is the step that differs",
            "give every rank the same optimizer, state, learning rate and weights to begin with: see LS103, LS202",
        )
    if mine.values.shape == theirs.values.shape and _by_rounding(mine, theirs):
        return (
            "; their gradients differ by roundings only: each rank has added them up in an order of its own",
            "reduce once for all ranks (all_reduce), or add in the order of ranks on every rank",
        )
    return "", "see LS201 for the gradient behind it, and LS001 for the start"


def _resting(recording: Recording, step: int, name: str, *ranks: int) -> int | None:
    """The first of ``ranks`` on which the step did not change the weights."""
    return next((rank for rank in ranks if rests(recording.ranks[rank], name, step - 1, step)), None)


def _by_rounding(mine: Tensor, theirs: Tensor) -> bool:
    assert mine.values is not None
    assert theirs.values is not None
    if theirs.values.dtype.kind not in "fc":
        return False
    unit = 2.0**-7 if theirs.dtype == "bfloat16" else float(np.finfo(theirs.values.dtype).eps)
    scale = float(np.abs(theirs.values).max(initial=0.0))
    return bool(np.abs(mine.values - theirs.values).max(initial=0.0) <= ROUNDINGS * unit * scale)


CHECK = weight_lockstep
