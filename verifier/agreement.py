"""Do all ranks hold the same bytes of something? What several lockstep checks share. Pure functions on recordings."""

from __future__ import annotations

from collections.abc import Callable

from verifier.check import Findings
from verifier.comparison import odd_ones_out
from verifier.diagnosis import CONSEQUENCES, SEEN_ONLY
from verifier.recording import Recording, Tensor
from verifier.verdict import Failure

ABSENT = "absent"


def compare_across_ranks(
    recording: Recording,
    what: str,
    step: int,
    *,
    cause: str,
    explain: Callable[[int, int, str], str],
    hint: str,
    spread: bool = False,
) -> Findings:
    """Compare the digests of every tensor recorded as ``what`` in ``step``; the odd ranks are named by majority.

    ``explain(rank, standard, name)`` says it in words. Nothing recorded on any rank that came to its end: not claimed.
    ``spread``: a rank may do without a tensor that others have, and only those that have it are compared.
    """
    findings = Findings()
    if recording.scenario.world_size == 1:
        findings.not_claimed = "one rank has no other to agree with"
        return findings
    held = {rank.rank: rank.named(what, step) for rank in recording.ranks}
    names = list(dict.fromkeys(name for tensors in held.values() for name in tensors))
    if not names and recording.complete:
        findings.not_claimed = f"there is no {what.replace('_', ' ')} to compare"
    elif not names:
        findings.blocked = f"no {what.replace('_', ' ')} was recorded for step {step}"
    for name in names:
        digests = _digests(recording, held, name)
        if spread:
            digests = {rank: digest for rank, digest in digests.items() if digest != ABSENT}
        findings.comparisons += len(digests) - 1
        odd, majority = odd_ones_out(digests)
        standard = next(rank for rank in digests if rank not in odd)
        among = "" if majority else " (no majority: the lowest rank is taken as the standard)"
        findings.failures += [
            Failure(
                scenario=recording.scenario.name,
                step=step,
                rank=rank,
                parameter=name,
                expected=f"digest {digests[standard][:16]}",
                observed=f"digest {digests[rank][:16]}",
                cause=cause,
                confidence=SEEN_ONLY if cause in CONSEQUENCES else 1.0,
                explanation=explain(rank, standard, name) + among,
                hint=hint,
            )
            for rank in odd
        ]
    if spread and names and recording.complete and not findings.comparisons:
        findings.not_claimed = f"no {what.replace('_', ' ')} is on more than one rank"
    return findings


def _digests(recording: Recording, held: dict[int, dict[str, Tensor]], name: str) -> dict[int, str]:
    """By rank; a rank that came to its end without this tensor counts as another value."""
    digests = {rank: tensors[name].digest for rank, tensors in held.items() if name in tensors}
    ended = [rank.rank for rank in recording.ranks if rank.completed and rank.rank not in digests]
    return digests | dict.fromkeys(ended, ABSENT)
