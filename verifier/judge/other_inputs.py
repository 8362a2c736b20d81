"""Whether a rank's model got the inputs that the loop gave: a wrong gradient may be the right one of other samples.

Special here: this is no pattern of numbers. The bare model's inputs were recorded when its first forward began, so the
fact is observed and not guessed. That it is the *reason* is inferred: a strategy that gathers all inputs and takes its
own rows of the output is right. So patterns that fit the numbers come first.
"""

from __future__ import annotations

from verifier.judge.evidence import Cause, GradientEvidence

EXPLAINS = "LS201"  # failures of this check: `causes` reads it here


def other_inputs(e: GradientEvidence) -> Cause | None:
    if not e.inputs:
        return None
    who = "; ".join(f"on rank {rank} {whose}" for rank, whose in sorted(e.inputs.items()))
    return Cause(
        "other_inputs",
        0.9,
        f"the model was not given what the loop gave: {who}. The gradient is then that of other samples, and the "
        "targets are still each rank's own",
        "hand a rank's inputs on as they are: they are its share of the batch already, and are neither cut again, nor "
        "sent round, nor rank 0's",
    )


def passed_by(e: GradientEvidence) -> Cause | None:
    """The cause if no module of the model's class was called on any rank: a fact, and perhaps the reason."""
    if not e.passed_by:
        return None
    return Cause(
        "model_not_called",
        0.6,
        "in the first forward the model itself was not called, but its forward(), or its layers one by one: what is "
        "hooked to the model (pruning, spectral norms, a parametrization, a cast of its inputs) did not run",
        "call the module, model(x), and not model.forward(x)",
    )
