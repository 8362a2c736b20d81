"""Gradient equivalence: what the optimizer sees is what one process would see on the large batch.

Claim: just before ``optimizer.step()``, every rank's gradient of every parameter equals the gradient that a single
process computes on the union of all ranks' micro-batches. In exact arithmetic that means equal numbers, bit for bit; in
float64 it means within 1e-10 of the tensor's largest element (honest strategies agree to 1e-13, wrong ones are
off by 1e-6 and more); where the contract declares what is lost on the wire, within (W + 1) unit roundoffs of that
dtype, in the first step; with tagged gradients it means that every element carries its own name.

Catches: a sum where a mean was due, or the reverse; one micro-batch instead of all; gradients never reduced, or reduced
with another parameter's; reads before a collective has finished; parameters averaged instead of gradients.

Blind to: what happens after the gradient (clipping, the optimizer itself), and to parameters whose gradient is zero.

Seen in the wild: huggingface/picotron#39 (the hook reduces the parameter, not the gradient);
volcengine/verl#3332 (micro-batch losses not divided); fairseq#494 (divided twice).

Remedy: the cause names the pattern; multiply, divide, wait or reduce accordingly.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from verifier.check import Findings, check
from verifier.comparison import Difference, bound_exact, bound_float64, bound_lossy, compare
from verifier.diagnosis import GradientEvidence, diagnose
from verifier.packing import partners
from verifier.recording import RankRecording, Recording, Tensor
from verifier.verdict import Failure

EXACT, FLOAT64 = "exact", "float64"


@check
def gradient_equivalence(recording: Recording) -> Findings:
    findings = Findings()
    reference = recording.reference
    if reference is None or not reference.completed:
        findings.blocked = "the single-process reference did not come to its end, which is our fault"
        return findings
    if recording.scenario.tagged and not all(r.notes.get("tags_fired", True) for r in recording.ranks):
        findings.not_claimed = "the strategy trains copies of the parameters, which tags do not reach"
        return findings
    lossy = _contract(recording).get("lossy")
    if lossy and recording.scenario.tagged:
        findings.not_claimed = f"the strategy declares lossy={lossy!r}, and tags do not survive rounding"
        return findings
    num_steps = min(recording.scenario.num_steps, recording.scenario.keep_steps)
    for step in range(min(num_steps, 1) if lossy else num_steps):  # after a rounded step the weights are others
        failures = [
            failure
            for name in recording.parameter_names
            for rank in recording.ranks
            for failure in _compare(recording, reference, rank, step, name, findings)
        ]
        findings.failures += failures
        if failures:  # from here on the weights differ, too: later steps are consequences
            break
    return findings


def _compare(
    recording: Recording, reference: RankRecording, rank: RankRecording, step: int, name: str, findings: Findings
) -> list[Failure]:
    expected, observed = reference.tensor("gradient", step, name), rank.tensor("gradient", step, name)
    if observed is None or expected is None:
        if not rank.completed and ("weight", step, name) not in rank.tensors:
            findings.blocked = f"rank {rank.rank} did not come to the end of step {step}"
            return []
        if observed is expected:  # both None: no gradient here, none there
            return []
        return [_presence(recording, rank.rank, step, name, expected)]
    if observed.values is None or expected.values is None:
        findings.blocked = f"the contents of {name} were not kept"
        return []
    wanted = expected.values
    if _contract(recording).get("average") == "sum":
        wanted = wanted * recording.scenario.world_size
    findings.comparisons += 1
    difference = compare(observed.values, wanted, _bound(recording, reference, step, name, wanted))
    findings.note_margin(difference.margin)
    if difference.equal:
        return []
    return [_failure(recording, reference, rank, step, name, observed.values, wanted, difference)]


def _contract(recording: Recording) -> dict[str, Any]:
    contract: dict[str, Any] = recording.ranks[0].notes.get("contract", {})
    return contract


def _bound(recording: Recording, reference: RankRecording, step: int, name: str, expected: np.ndarray) -> float:
    lossy = _contract(recording).get("lossy")
    if lossy:
        return bound_lossy(_magnitude(recording, reference, step, name), recording.scenario.world_size, lossy)
    if reference.notes.get("arithmetic") == EXACT:
        return bound_exact(_magnitude(recording, reference, step, name), recording.scenario.world_size)
    if reference.notes.get("arithmetic") == FLOAT64:
        return bound_float64(expected)
    raise ValueError(f"no bound is known for arithmetic {reference.notes.get('arithmetic')!r}")


def _magnitude(recording: Recording, reference: RankRecording, step: int, name: str) -> float:
    """The largest mean over ranks of the absolute local gradients."""
    local = [np.abs(g) for g in _local_gradients(recording, reference, step, name).values()]
    return float(np.mean(local, axis=0).max()) if local and local[0].size else 0.0


def _local_gradients(recording: Recording, reference: RankRecording, step: int, name: str) -> dict[int, np.ndarray]:
    """Each rank's own gradient before synchronisation, as the single process computed it, where it was recorded."""
    found = {
        rank: reference.tensor(f"local_gradient_{rank}", step, name) for rank in range(recording.scenario.world_size)
    }
    return {rank: t.values for rank, t in found.items() if t is not None and t.values is not None}


def _failure(
    recording: Recording,
    reference: RankRecording,
    rank: RankRecording,
    step: int,
    name: str,
    observed: np.ndarray,
    expected: np.ndarray,
    difference: Difference,
) -> Failure:
    scenario = recording.scenario
    evidence = GradientEvidence(
        observed=observed,
        expected=expected,
        world_size=scenario.world_size,
        num_micro_batches=scenario.num_micro_batches,
        poisoned=scenario.poison,
        rank=rank.rank,
        written_in_flight=any(c.written_in_flight for c in rank.collectives if c.step == step),
        local=_local_gradients(recording, reference, step, name),
        contains=_contents(recording, rank.rank, step, name, difference),
    )
    cause = diagnose(evidence)
    return Failure(
        scenario=scenario.name,
        step=step,
        rank=rank.rank,
        parameter=name,
        index=list(difference.index),
        expected=repr(difference.expected),
        observed=repr(difference.observed),
        cause=cause.name if cause else None,
        confidence=cause.confidence if cause else 0.0,
        explanation=cause.explanation if cause else "the gradient is not that of the large batch; no pattern fits",
        hint=cause.hint if cause else None,
    )


def _contents(recording: Recording, rank: int, step: int, name: str, difference: Difference) -> str | None:
    shape = next(e["shape"] for e in recording.ranks[rank].notes["parameters"] if e["name"] == name)
    element = int(np.ravel_multi_index(difference.index, shape)) if shape else 0
    return partners(recording, rank, step, name, element)


def _presence(recording: Recording, rank: int, step: int, name: str, expected: Tensor | None) -> Failure:
    missing = expected is not None
    return Failure(
        scenario=recording.scenario.name,
        step=step,
        rank=rank,
        parameter=name,
        expected="a gradient" if missing else "no gradient",
        observed="None" if missing else "a gradient",
        cause="missing_gradient" if missing else None,
        confidence=0.9 if missing else 0.0,
        explanation=f"rank {rank} has {'no' if missing else 'a'} gradient for {name}; the single process has "
        f"{'one' if missing else 'none'}",
        hint="leave the result of the reduction in parameter.grad before the optimizer steps" if missing else None,
    )


CHECK = gradient_equivalence
