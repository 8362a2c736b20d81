"""Random streams stay apart: ranks that were seeded differently draw different numbers when training ends.

Claim: a strategy leaves torch's random numbers alone, or at least as different between ranks as it found them. Replicas
that draw the same dropout masks and augmentations train on less than they seem to.

Catches: ``torch.manual_seed(0)`` inside a wrapper, to make initial weights equal; a broadcast of the random state.

Blind to: numpy's and Python's random numbers, and to a device's; a seed that is set around each forward and taken back.

Seen in the wild: pytorch/pytorch#56488 (workers share a seed, augmentations are identical).

Remedy: make replicas equal by a broadcast, not by a seed; or seed inside
``torch.random.fork_rng()``, around the making of the model alone.
"""

from __future__ import annotations

from verifier.check import Findings, check
from verifier.recording import Recording
from verifier.verdict import Failure


@check(when=lambda scenario: scenario.resume_after is None)
def rng_streams(recording: Recording) -> Findings:
    findings = Findings()
    if recording.scenario.world_size == 1:
        findings.not_claimed = "one rank has no other to differ from"
        return findings
    first: dict[str, int] = {}
    for rank in recording.ranks:
        end = rank.notes.get("rng_end")
        if end is None:
            findings.blocked = f"rank {rank.rank} did not come to its end"
            continue
        findings.comparisons += 1
        if end in first:
            findings.failures.append(
                Failure(
                    scenario=recording.scenario.name,
                    rank=rank.rank,
                    expected="random numbers of its own",
                    observed=f"the state of rank {first[end]}",
                    cause="same_random_numbers",
                    confidence=1.0,
                    explanation=f"ranks {first[end]} and {rank.rank} were seeded differently, and end with the same "
                    "state of torch's random numbers: the strategy has seeded them",
                    hint="do not seed inside the strategy, or do it inside torch.random.fork_rng()",
                )
            )
        first.setdefault(end, rank.rank)
    return findings


CHECK = rng_streams
