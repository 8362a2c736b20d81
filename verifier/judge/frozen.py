"""Whether frozen parameters stay unchanged from the first forward to after the last step. Pure.

Special here: each rank is compared with itself, so the check needs to know neither the update rule nor how a sharder
lays out parameters. A parameter whose shape differs between the two times is not compared, nor is one that a driver
does not show.
"""

from __future__ import annotations

from verifier.check import Findings
from verifier.recording import RankRecording, Recording
from verifier.verdict import Failure

EXPLAINS = "LS202"  # failures of this check: `causes` reads it here


def compare_frozen(recording: Recording) -> Findings:
    """Compare every rank's frozen parameters byte for byte. Empty if the model has none."""
    findings, last = Findings(), recording.scenario.num_steps - 1
    if recording.scenario.resume_after is not None:  # new replicas: LS504 judges what they loaded
        return findings
    for rank in recording.ranks:
        for name in recording.frozen_names:
            before, after = rank.tensor("frozen", -1, name), rank.tensor("frozen", last, name)
            if before is None or after is None or before.shape != after.shape:
                continue
            findings.comparisons += 1
            if before.digest != after.digest:
                findings.failures.append(_moved(recording, rank, last, name))
    return findings


def _moved(recording: Recording, rank: RankRecording, step: int, name: str) -> Failure:
    return Failure(
        scenario=recording.scenario.name,
        step=step,
        rank=rank.rank,
        parameter=name,
        expected="the weights of the first forward",
        observed="other weights",
        cause="unfrozen",
        confidence=0.9,
        explanation=f"on rank {rank.rank} the weights of {name} have moved, which is frozen: requires_grad was False",
        hint="give the optimizer what is trained and nothing else: weight decay moves a parameter without a gradient",
    )
