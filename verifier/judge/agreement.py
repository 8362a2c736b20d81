"""Whether all ranks hold the same bytes of something, for several lockstep checks. Pure functions on recordings."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from verifier.check import Findings
from verifier.judge.comparison import odd_ones_out
from verifier.judge.diagnosis import CONSEQUENCES, SEEN_ONLY
from verifier.marker import holds_poison
from verifier.recording import Recording, Tensor
from verifier.verdict import Failure

STATES = frozenset({"momentum_buffer", "step", "exp_avg", "exp_avg_sq", "max_exp_avg_sq"})  # of torch's SGD and AdamW
NO_MAJORITY = " (no majority: the lowest rank is taken as the standard)"


def compare_across_ranks(
    recording: Recording,
    what: str,
    step: int,
    *,
    cause: str,
    explain: Callable[[int, int, str], str],
    hint: str,
    spread: bool = False,
    only: Callable[[str], bool] = lambda name: True,
) -> Findings:
    """Compare the digests of every tensor recorded as ``what`` in ``step``; ranks that differ from the majority fail.

    ``explain(rank, standard, name)`` words the failure. If all ranks completed and none recorded one: not claimed.
    ``spread``: a rank may lack a tensor that others have; only ranks that have it are compared. ``only`` filters names.
    """
    findings = Findings()
    if recording.scenario.world_size == 1:
        findings.not_claimed = "one rank has no other to agree with"
        return findings
    held = {rank.rank: rank.named(what, step) for rank in recording.ranks}
    names = list(dict.fromkeys(name for tensors in held.values() for name in tensors if only(name)))
    for name in names:
        digests = _digests(recording, held, name, without_absent=spread)
        findings.comparisons += len(digests) - 1
        odd, majority = odd_ones_out(digests)
        standard = next(rank for rank in digests if rank not in odd)
        failures = [
            Failure(
                scenario=recording.scenario.name,
                step=step,
                rank=rank,
                parameter=name,
                expected=f"digest {digests[standard][:16]}",
                observed=f"digest {digests[rank][:16]}",
                cause=cause,
                confidence=SEEN_ONLY if cause in CONSEQUENCES else 1.0,
                explanation=explain(rank, standard, name) + ("" if majority else NO_MAJORITY),
                hint=hint,
            )
            for rank in odd
        ]
        findings.failures += told_early(failures, [tensors[name] for tensors in held.values() if name in tensors])
    if not findings.comparisons:
        _say_why(findings, recording, what.replace("_", " "), step, bool(names), spread)
    return findings


def told_early(failures: list[Failure], tensors: Iterable[Tensor]) -> list[Failure]:
    """``failures``, as ``read_before_wait`` if one of ``tensors`` holds the marker of a tensor in flight."""
    if not any(tensor.values is not None and holds_poison(tensor.values) for tensor in tensors):
        return failures
    hint = "call work.wait() before anybody reads what the collective works on"
    early = {"cause": "read_before_wait", "confidence": 1.0, "hint": hint}
    told = [f"{failure.explanation}: it holds the marker of a tensor in flight" for failure in failures]
    return [f.model_copy(update={**early, "explanation": words}) for f, words in zip(failures, told, strict=True)]


def _say_why(findings: Findings, recording: Recording, what: str, step: int, any_held: bool, spread: bool) -> None:
    """Note in ``findings`` why nothing was compared."""
    if not any_held and recording.complete:
        findings.not_claimed = f"there is no {what} to compare"
    elif not any_held:
        findings.blocked = f"no {what} was recorded for step {step}"
    elif spread and recording.complete:
        findings.not_claimed = f"no {what} is on more than one rank"


def _digests(
    recording: Recording, held: dict[int, dict[str, Tensor]], name: str, *, without_absent: bool
) -> dict[int, str]:
    """Digests by rank. A rank that completed without this tensor has the digest "absent", or is left out."""
    digests = {rank: tensors[name].digest for rank, tensors in held.items() if name in tensors}
    if without_absent:
        return digests
    ended = [rank.rank for rank in recording.ranks if rank.completed and rank.rank not in digests]
    return digests | dict.fromkeys(ended, "absent")
