"""Buffer lockstep: in every step, all ranks' forwards find the same buffers, to the byte.

Claim: what a forward reads (BatchNorm's running statistics, counters, means) is the same on every replica, so that a
checkpoint and an evaluation do not depend on the rank. torch's DDP sends rank 0's at the start of each forward; a
strategy that averages them instead, or uses synchronised BatchNorm, passes as well. Counters are counted as in a single
process, once a step.

Catches: wrappers that synchronise parameters and forget buffers; a broadcast at the start only; counters added up over
ranks.

Blind to: buffers that no forward reads; a strategy that reads other ranks' values without changing the buffer; wrong
statistics that are equally wrong on all ranks (only counters are held to a single process); buffers that are left alone
in evaluation mode alone.

Seen in the wild: huggingface/pytorch-image-models#110, open-mmlab/mmdetection#4582, pytorch/pytorch#13711: evaluation
differs from rank to rank, and the checkpoint holds one rank's statistics.

Remedy: before each forward of a step broadcast ``model.buffers()`` from rank 0. A strategy that leaves buffers alone on
purpose declares ``Contract(sync_buffers=False)``.
"""

from __future__ import annotations

from functools import partial

from verifier.agreement import compare_across_ranks
from verifier.check import Findings, check
from verifier.equivalence import contract_of
from verifier.recording import Recording, Tensor
from verifier.verdict import Failure


@check(when=lambda scenario: scenario.workload == "buffers")
def buffer_lockstep(recording: Recording) -> Findings:
    if not contract_of(recording).get("sync_buffers", True):
        return Findings(not_claimed="the strategy declares sync_buffers=False")
    findings = Findings()
    for step in range(1, recording.scenario.num_steps):  # in step 0 replicas were built equal
        found = compare_across_ranks(
            recording,
            "buffer",
            step,
            cause="buffers_diverged",
            explain=partial(_explain, step),
            hint="send rank 0's buffers to all ranks at the start of each forward",
        )
        findings.comparisons += found.comparisons
        findings.blocked = findings.blocked or found.blocked
        findings.not_claimed = findings.not_claimed or found.not_claimed
        findings.failures += found.failures or _miscounted(recording, step, findings)
        if findings.failures:
            break
    return findings


def _miscounted(recording: Recording, step: int, findings: Findings) -> list[Failure]:
    """Whole-numbered buffers that are not those of the single process, which sees as many steps."""
    failures = []
    expected = recording.reference.named("buffer", step) if recording.reference is not None else {}
    for name, tensor in expected.items():
        observed = recording.ranks[0].tensor("buffer", step, name)
        if tensor.dtype.startswith("int") and observed is not None:
            findings.comparisons += 1
            if observed.digest != tensor.digest:
                failures.append(_miscount(recording, step, name, tensor, observed))
    return failures


def _miscount(recording: Recording, step: int, name: str, expected: Tensor, observed: Tensor) -> Failure:
    return Failure(
        scenario=recording.scenario.name,
        step=step,
        rank=0,
        parameter=name,
        expected=str(expected.values),
        observed=str(observed.values),
        cause="buffers_miscounted",
        confidence=0.9,
        explanation=f"in step {step} every forward finds {observed.values} in {name}, a single process "
        f"{expected.values}",
        hint="copy whole-numbered buffers from one rank; a sum over ranks counts every step as many",
    )


def _explain(step: int, rank: int, other: int, name: str) -> str:
    return f"in step {step} rank {rank}'s forward finds other values of buffer {name} than rank {other}'s"


CHECK = buffer_lockstep
