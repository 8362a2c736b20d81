"""The failures for a gradient that is missing, or present where there should be none. Pure.

Special here: presence itself is compared in ``equivalence``; a gradient of zeros may as well be absent.
"""

from __future__ import annotations

from verifier.recording import Recording, Tensor
from verifier.verdict import Failure

EXPLAINS = "LS201"  # failures of this check: `causes` reads it here


def trained_though_frozen(recording: Recording, rank: int, step: int, name: str) -> Failure:
    return Failure(
        scenario=recording.scenario.name,
        step=step,
        rank=rank,
        parameter=name,
        expected="no gradient",
        observed="a gradient",
        cause="unfrozen",
        confidence=0.9,
        explanation=f"rank {rank}'s optimizer finds a gradient of {name}, which is frozen: requires_grad was False",
        hint="leave requires_grad as it was, also in parameters that are made anew, and skip what is frozen",
    )


def wrong_presence(recording: Recording, rank: int, step: int, name: str, expected: Tensor | None) -> Failure:
    missing = expected is not None
    return Failure(
        scenario=recording.scenario.name,
        step=step,
        rank=rank,
        parameter=name,
        expected="a gradient" if missing else "no gradient",
        observed="None" if missing else "a gradient",
        cause="missing_gradient" if missing else "stray_gradient",
        confidence=0.9,
        explanation=f"rank {rank} has {'no' if missing else 'a'} gradient for {name}; the single process has "
        f"{'one' if missing else 'none'}",
        hint="leave the result of the reduction in parameter.grad before the optimizer steps"
        if missing
        else "clear gradients between steps, and write a result back only to parameters that some rank used",
    )
