"""Buffer lockstep: in every step, all ranks' forwards find the same buffers, to the byte.

Claim: what a forward reads (BatchNorm's running statistics, counters, means) is the same on every replica, so that a
checkpoint and an evaluation do not depend on the rank. torch's DDP sends rank 0's buffers at the start of each forward.
A strategy that averages them instead, or uses synchronised BatchNorm, passes as well: what a forward finds must lie
between the values that the ranks' forwards left before. What the first forward may leave is known: the result on the
rank's own samples, on all samples, or the mean of the ranks' own results. Counters of steps equal a single process's:
they grow by one per step, and not in an evaluation. Counts of samples must be equal on all ranks. A strategy that is
given a process group smaller than the job must find what that group's ranks have left.

Catches: wrappers that synchronise parameters and forget buffers; a broadcast at the start only; counters added up over
ranks; statistics that are summed, scaled, reset or made NaN on all ranks alike; a synchronised norm that keeps another
variance than BatchNorm does; an ``eval()`` that does not reach the model; counters above 2**24 sent as float32; buffers
of rank 0 of the job where a group was given.

Blind to: buffers that no forward reads; a strategy that reads other ranks' values without changing the buffer; a wrong
mean that lies between the ranks' values; statistics that go wrong after the first forward; a strategy that leaves
buffers alone only in evaluation mode, or because they are not saved (``persistent=False``); in a group smaller than the
job, integer buffers and what the first forward finds.

Seen in the wild: huggingface/pytorch-image-models#110, open-mmlab/mmdetection#4582, pytorch/pytorch#13711: evaluation
differs from rank to rank, and the checkpoint holds one rank's statistics.

Remedy: before each forward of a step broadcast ``model.buffers()`` from rank 0. A strategy that leaves buffers alone on
purpose declares ``Contract(sync_buffers=False)``.
"""

from __future__ import annotations

from functools import partial

import numpy as np

from verifier.check import Findings, check
from verifier.judge.agreement import compare_across_ranks, told_early
from verifier.judge.arithmetic import WITH_NORMS, contract_of
from verifier.judge.buffers_left import buffers_in_groups, outside_of_what_was_left, slack
from verifier.judge.comparison import Difference, compare
from verifier.recording import RankRecording, Recording, Tensor
from verifier.verdict import Failure

MISCOUNTS = (
    "copy whole-numbered buffers from one rank; a sum over ranks counts every step as many. An evaluation between two "
    "steps counts nothing: eval() and train() have to reach the model"
)
STANDS_STILL = (
    "a forward counts in the model's own buffers: one that runs on copies of them (torch.func.functional_call(), a "
    "replica made for the step), or after which old buffers are put back, loses what it counted; a layer that takes "
    "BatchNorm's place counts as well"
)
STATED = 1e-4  # of the largest number in a buffer: the rounding of a float32 norm; gradients have the same bound


@check(when=lambda scenario: scenario.workload in WITH_NORMS)
def buffer_lockstep(recording: Recording) -> Findings:
    if not contract_of(recording).get("sync_buffers", True):
        return Findings(not_claimed="the strategy declares sync_buffers=False")
    if recording.scenario.subgroups:
        return buffers_in_groups(recording)
    findings = Findings()
    for step in range(1, recording.scenario.num_steps):  # in step 0 replicas are equal by construction
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
        findings.failures += (
            found.failures or _miscounted(recording, step, findings) or _outside(recording, step, findings)
        )
        if findings.failures:
            break
    if not findings.failures:
        findings.failures += _misstated(recording, findings)
    return findings


def _misstated(recording: Recording, findings: Findings) -> list[Failure]:
    """Failures for floating buffers that no correct first forward would leave, on one rank's or on all samples."""
    if recording.reference is None:
        return []
    failures = []
    for rank in recording.ranks:
        for name, found in rank.named("left_buffer", 0).items():
            right = _right_after_one(recording, name)
            if not right or found.values is None or not found.dtype.startswith("float"):
                continue
            findings.comparisons += 1
            largest = max(float(np.abs(values).max(initial=0.0)) for values in right)
            bound = max(STATED, slack(recording)) * largest + 1e-30
            differences = [compare(found.values, values, bound) for values in right]
            if not any(difference.equal for difference in differences):
                failures += told_early([_misstatement(recording, rank, name, differences[0])], [found])
    return failures


def _right_after_one(recording: Recording, name: str) -> list[np.ndarray]:
    """The values that buffer ``name`` may have after the first forward: the single process's on all samples, each
    rank's on its own samples, and the mean of the ranks'. Empty if not all of them are known.
    """
    assert recording.reference is not None
    kinds = ["left_buffer", *(f"left_buffer_{rank}" for rank in range(recording.scenario.world_size))]
    tensors = [recording.reference.tensor(kind, 0, name) for kind in kinds]
    values = [tensor.values for tensor in tensors if tensor is not None and tensor.values is not None]
    if len(values) < len(kinds):
        return []
    return [*values, np.mean(values[1:], axis=0)]


def _miscounted(recording: Recording, step: int, findings: Findings) -> list[Failure]:
    """Failures for step counters that differ from the single process's, which runs as many steps."""
    failures = []
    expected = recording.reference.named("buffer", step) if recording.reference is not None else {}
    for name, tensor in expected.items():
        observed = recording.ranks[0].tensor("buffer", step, name)
        if tensor.dtype.startswith("int") and observed is not None and _counts_steps(recording, name):
            findings.comparisons += 1
            if observed.digest != tensor.digest:
                failures.append(_miscount(recording, step, name, tensor, observed))
    return failures


def _counts_steps(recording: Recording, name: str) -> bool:
    """Return whether buffer ``name`` counts forwards: the first forward then leaves the same value on any samples."""
    found = _right_after_one(recording, name)
    return all(np.array_equal(found[0], other) for other in found[1:])


def _outside(recording: Recording, step: int, findings: Findings) -> list[Failure]:
    """Failures for floating buffers outside the range that the ranks' forwards of the previous step left."""
    failures = []
    for name, found in recording.ranks[0].named("buffer", step).items():
        difference = outside_of_what_was_left(found, recording.ranks, step, name, slack(recording))
        findings.comparisons += difference is not None
        if difference is None and found.dtype.startswith("float"):
            findings.blocked = findings.blocked or f"not every rank's forward said what it left in {name}"
        if difference is not None and not difference.equal:
            failures += told_early([_outlier(recording, step, name, difference)], [found])
    return failures


def _outlier(recording: Recording, step: int, name: str, difference: Difference) -> Failure:
    return Failure(
        scenario=recording.scenario.name,
        step=step,
        rank=0,
        parameter=name,
        index=list(difference.index),
        expected=f"within what the ranks left: {difference.expected:g} at most or at least",
        observed=f"{difference.observed:g}",
        cause="buffers_invented",
        confidence=0.9,
        explanation=f"in step {step} every forward finds {difference.observed:g} in {name}, and no rank's forward "
        f"left so much or so little: the nearest is {difference.expected:g}",
        hint="copy buffers from one rank or average them; do not sum, reset or scale them",
    )


def _misstatement(recording: Recording, rank: RankRecording, name: str, difference: Difference) -> Failure:
    return Failure(
        scenario=recording.scenario.name,
        step=0,
        rank=rank.rank,
        parameter=name,
        index=list(difference.index),
        expected=f"{difference.expected:g} of all samples, or what the rank's own come to",
        observed=f"{difference.observed:g}",
        cause="statistics_misstated",
        confidence=0.8,  # other weights at the start leave other statistics, too
        explanation=f"the first forward leaves {difference.observed:g} in {name} on rank {rank.rank}; all ranks' "
        f"samples come to {difference.expected:g}, and neither one rank's own nor a mean over ranks explains it",
        hint="keep what BatchNorm keeps: the mean of all samples, and their variance divided by their number less one, "
        "not the mean of the ranks' variances; each enters by the momentum once",
    )


def _miscount(recording: Recording, step: int, name: str, expected: Tensor, observed: Tensor) -> Failure:
    before = recording.ranks[0].tensor("buffer", step - 1, name)
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
        hint=STANDS_STILL if before is not None and before.digest == observed.digest else MISCOUNTS,
    )


def _explain(step: int, rank: int, other: int, name: str) -> str:
    return f"in step {step} rank {rank}'s forward finds other values of buffer {name} than rank {other}'s"


CHECK = buffer_lockstep
