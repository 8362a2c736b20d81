"""Random streams stay apart: ranks that were seeded differently draw different numbers in a forward, and at the end.

Claim: a strategy leaves torch's, numpy's and Python's random numbers alone (on GPUs, the device's, too), or at least as
different between ranks as it found them. Replicas that draw the same dropout masks and augmentations train on less than
they seem to. And a part of the model that is run again for the backward, to save memory, draws what it drew in the
forward.

Catches: ``torch.manual_seed(0)`` inside a wrapper, to make initial weights equal, and ``random.seed(0)`` beside it; a
broadcast of the random state; a seed that is set before each forward, with the state restored after it; a seed by
LOCAL_RANK; activation checkpointing without the forward's random numbers; a checkpoint that hands rank 0's random state
to all ranks.

Blind to: a seed that is set only in later forwards, with the state restored.

Seen in the wild: pytorch/pytorch#56488 (workers share numpy's seed, augmentations are identical); mujocolab/mjlab#988
and isaac-sim/IsaacLab#5033 (seeds by LOCAL_RANK: the same on each node).

Remedy: make replicas equal by a broadcast, not by a seed; or seed inside
``torch.random.fork_rng()``, around the making of the model alone.
"""

from __future__ import annotations

from verifier.check import Findings, check
from verifier.recording import Recording
from verifier.verdict import Failure

# The keys are the notes in which a rank's journal has the state of its random numbers.
MOMENTS = {"rng_forward": "begin the model's first forward", "rng_end": "end"}

SEEDED = (
    "do not seed inside the strategy, or do it inside torch.random.fork_rng(), and around the making of the model "
    "alone; what all ranks are to draw alike needs a generator of its own"
)
LOADED = "save the random states of all ranks, and have each rank load its own"


@check
def rng_streams(recording: Recording) -> Findings:
    findings = Findings()
    if recording.scenario.world_size == 1:
        findings.not_claimed = "one rank has no other to differ from"
        return findings
    for rank in recording.ranks:
        if rank.notes.get("rng_end") is None:
            findings.blocked = f"rank {rank.rank} did not come to its end"
    if findings.blocked and recording.scenario.resume_after is not None:
        return Findings(not_claimed="the run was not resumed, of which LS504 tells")
    for note, when in MOMENTS.items():
        findings.failures += _same(recording, note, when, findings)
        if findings.failures:
            break
    findings.failures += _drawn_again(recording, findings)
    return findings


def _drawn_again(recording: Recording, findings: Findings) -> list[Failure]:
    """Failures for ranks whose backward drew random numbers that none of their forwards had drawn."""
    failures = []
    for rank in recording.ranks:
        drawn = rank.notes.get("drawn") or {"forwards": [], "backwards": []}
        findings.comparisons += len(drawn["backwards"])
        others = [number for number in drawn["backwards"] if number not in drawn["forwards"]]
        if others:
            failures.append(
                Failure(
                    scenario=recording.scenario.name,
                    rank=rank.rank,
                    expected="a number that a forward has drawn",
                    observed=f"{others[0]:.6g}",
                    cause="drawn_again",
                    confidence=1.0,
                    explanation=f"rank {rank.rank} ran a part of its forward again for the backward, and drew other "
                    f"random numbers there, {len(others)} times of {len(drawn['backwards'])}: its gradient is that of "
                    "another dropout than its loss",
                    hint="restore the random state of the forward where it is run again: preserve_rng_state=True of "
                    "torch.utils.checkpoint",
                )
            )
    return failures


def _same(recording: Recording, note: str, when: str, findings: Findings) -> list[Failure]:
    """Failures for ranks that have the random state of a lower rank. What only some ranks noted blocks the check."""
    first: dict[tuple[str, str], int] = {}
    failures = []
    silent = [rank.rank for rank in recording.ranks if not rank.notes.get(note)]
    if 0 < len(silent) < len(recording.ranks):
        findings.blocked = findings.blocked or f"rank {silent[0]} did not {when}, and others did"
    for rank in recording.ranks:
        noted = rank.notes.get(note) or {}
        for whose, state in ({"torch": noted} if isinstance(noted, str) else noted).items():  # old ones have torch's
            findings.comparisons += rank is not recording.ranks[0]
            other = first.setdefault((whose, state), rank.rank)
            if other != rank.rank:
                failures.append(_failure(recording, rank.rank, other, whose, when))
    return failures


def _failure(recording: Recording, rank: int, other: int, whose: str, when: str) -> Failure:
    resumed = recording.scenario.resume_after is not None
    also = ", or what the run was resumed from gives one rank's to all" if resumed else ""
    return Failure(
        scenario=recording.scenario.name,
        rank=rank,
        expected="random numbers of its own",
        observed=f"the state of rank {other}",
        cause="same_random_numbers",
        confidence=1.0,
        explanation=f"ranks {other} and {rank} were seeded differently, and {when} with the same state of {whose}'s "
        f"random numbers: the strategy has seeded them{also}",
        hint=LOADED if resumed else SEEDED,
    )


CHECK = rng_streams
