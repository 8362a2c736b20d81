"""Tensors in flight are left alone: nobody reads or writes what a collective is working on.

Claim: between the start of an asynchronous collective and the wait for it, its tensor belongs to the transport. The
observer fills the tensor with a marker meanwhile, and checks that the marker is still there when the collective lands.

Catches: gradients scaled, clipped or zeroed while they are being reduced; results read, or copied, before the wait (the
marker is then found in a gradient or a weight, or in an error, if it was used as an index); a buffer that is refilled
too early, also where nobody ever waits for what was sent from it.

Blind to: reads whose result is thrown away; tensors that hold no marker (of booleans, sparse, or with gaps between
their elements); in inputs larger than 16 MiB, writes between the places that are checked.

Seen in the wild: microsoft/DeepSpeed#5545, NVIDIA/Megatron-LM#4054 (double buffers reused too early);
pytorch/pytorch#27806.

Remedy: ``work.wait()`` first; then read, scale, clip, zero.
"""

from __future__ import annotations

from verifier.check import Findings, check
from verifier.marker import INTEGERS, holds_poison
from verifier.recording import RankRecording, Recording, Tensor
from verifier.refusal import last_words, stumbled_on_marker
from verifier.verdict import Failure

WATCHED = ("gradient", "weight", "buffer")


@check(when=lambda scenario: scenario.poison)
def in_flight(recording: Recording) -> Findings:
    findings, clean = Findings(), set[object]()
    for rank in recording.ranks:
        for collective in rank.collectives:
            findings.comparisons += 1
            if collective.written_in_flight:
                findings.failures.append(
                    Failure(
                        scenario=recording.scenario.name,
                        step=collective.step if collective.step >= 0 else None,
                        rank=rank.rank,
                        bucket=rank.place_in_step(collective) if collective.step >= 0 else None,
                        expected="an untouched tensor",
                        observed="a write to it",
                        cause="written_in_flight",
                        confidence=1.0,
                        explanation=f"{collective.describe()}, started in {collective.phase}: its tensor was written "
                        "to before the wait",
                        hint="wait for the collective before writing to what it works on",
                    )
                )
        findings.comparisons += sum(what in WATCHED for what, _, _ in rank.tensors)
        findings.failures += _early_reads(recording, rank, clean)
        findings.failures += _early_use(recording, rank)
    if not findings.comparisons and recording.complete:
        findings.not_claimed = "no collective was seen"
    return findings


def _early_reads(recording: Recording, rank: RankRecording, clean: set[object]) -> list[Failure]:
    """Failures for the tensors that hold the marker in the first step that has any. Others are added to ``clean``.

    Gradients recorded twice count as they were when the optimizer began: a loop that clips nothing reads none before
    ``step()``, which may be what waits.
    """
    watched = [t for (what, _, _), t in rank.tensors.items() if what in WATCHED and t.bits not in clean]
    held = [t for t in watched if _holds_marker(t)]
    clean |= {t.bits for t in watched} - {t.bits for t in held}
    first = min((t.step for t in held), default=None)
    kinds = [t for t in held if t.step == first]
    gradients = [t for t in kinds if t.what == "gradient"]
    return [
        Failure(
            scenario=recording.scenario.name,
            step=t.step if t.step >= 0 else None,
            rank=rank.rank,
            parameter=t.name,
            expected=f"a {t.what}",
            observed="the marker of a tensor in flight",
            cause="read_before_wait",
            confidence=1.0,
            explanation=f"the {t.what} of {t.name} holds the marker that fills a tensor while its collective is in "
            "flight: it was read, or copied, before the collective was waited for",
            hint="call work.wait() before reading, averaging or copying what the collective works on",
        )
        for t in gradients or kinds
    ]


def _early_use(recording: Recording, rank: RankRecording) -> list[Failure]:
    """A failure if the rank raised because of the marker: an index or a size that was read from a tensor in flight."""
    collective = stumbled_on_marker(rank)
    if collective is None:
        return []
    step = collective.step if collective.step >= 0 else None
    return [
        Failure(
            scenario=recording.scenario.name,
            step=step,
            rank=rank.rank,
            bucket=None if step is None else rank.place_in_step(collective),
            expected=f"a result of {collective.describe()}",
            observed=last_words(str((rank.outcome or {})["detail"])),
            cause="read_before_wait",
            confidence=1.0,
            explanation=f"what {collective.describe()} brings was used before it was waited for: the error is about "
            f"a number that is too large, and until then its integers hold {INTEGERS[collective.dtype]}, the marker of "
            "a tensor in flight",
            hint="call work.wait() before using what the collective brings",
        )
    ]


def _holds_marker(tensor: Tensor) -> bool:
    return tensor.values is not None and holds_poison(tensor.values)


CHECK = in_flight
