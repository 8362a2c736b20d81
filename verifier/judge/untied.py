"""Whether a gradient is wrong because its parameter is used in two places, and wrapping has made two tensors of it.

Special here: no pattern of numbers, but a fact: after wrapping the model has both names, each with its own tensor. A
gradient of one of them lacks the other's share, so other patterns fit it by chance alone; those of a rank that reduced
nothing fit whatever is tied, and come first.
"""

from __future__ import annotations

from verifier.judge.evidence import Cause, GradientEvidence

EXPLAINS = "LS201"  # failures of this check: `causes` reads it here


def untied(e: GradientEvidence) -> Cause | None:
    if e.untied is None:
        return None
    return Cause(
        "untied",
        0.95,
        f"this parameter and {e.untied} were one tensor in the model, and are two once it is wrapped: each gets its "
        "own share of the gradient, and the two drift apart",
        "make each parameter anew only once, for all names of it (named_parameters(remove_duplicate=False) lists "
        "them), or tie them again",
    )
