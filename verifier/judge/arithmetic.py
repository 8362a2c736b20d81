"""The arithmetic of a recording, and whose update rule it has: they decide how gradients and weights are compared.

Special here: both are read from the single process's description of the model and from the contract, never inferred
from the numbers.
"""

from __future__ import annotations

from typing import Any

from verifier.recording import Recording

EXACT = "exact"
WIDE = ("float64", "complex128")
SINGLE = ("float32", "complex64")
WITH_NORMS = ("buffers", "images")  # workloads


def contract_of(recording: Recording) -> dict[str, Any]:
    contract: dict[str, Any] = recording.ranks[0].notes.get("contract", {})
    return contract


def sums_in_float16(contract: dict[str, Any]) -> bool:
    """Return whether the contract declares sums that are rounded to float16, which may overflow."""
    return contract.get("average") == "sum" and contract.get("lossy") == "float16"


def own_steps(recording: Recording) -> str | None:
    """Return why the strategy's steps may rightly differ from a single process's; None if they must be the same."""
    if contract_of(recording).get("average") == "sum":
        return "the strategy declares average='sum': its steps are longer than a single process's"
    if recording.own_rule:
        return f"the update rule is the strategy's own ({recording.own_rule})"
    return None


def is_lossy(recording: Recording) -> bool:
    return bool(contract_of(recording).get("lossy"))


def may_turn_over(recording: Recording) -> bool:
    """Return whether a declared rounding, once it is in the weights, may grow as large as a mistake: whole numbers
    often meet a relu at exactly 0, where it decides whether a gradient passes. Smooth models judge such a strategy.
    """
    return is_lossy(recording) and is_exact(recording)


def is_wide(recording: Recording) -> bool:
    """Return whether the whole model is in float64. One narrow layer blurs the gradients of all layers before it."""
    return dtypes(recording) <= {*WIDE}


def dtypes(recording: Recording) -> set[str]:
    assert recording.reference is not None
    return {entry["dtype"] for entry in recording.reference.notes.get("parameters", [])}


def is_single(recording: Recording) -> bool:
    """Return whether only float32 rounding makes later steps differ from the single process's (SINGLE_BOUND applies).

    It does not under autocast, a declared lossy wire, declared sums, norms over samples or the strategy's own rule.
    """
    kinds = dtypes(recording)
    if is_exact(recording) or recording.scenario.autocast or not kinds <= {*SINGLE, *WIDE} or kinds <= {*WIDE}:
        return False
    if is_lossy(recording) or contract_of(recording).get("average") == "sum" or has_norms(recording):
        return False
    return not recording.maybe_own_rule


def keeps_float64(recording: Recording, dtype: str) -> bool:
    """Return whether a parameter of ``dtype`` must keep float64 precision beside parameters of narrower dtypes."""
    return dtype in WIDE and "float64" not in contract_of(recording).get("disclaims", ())


def is_narrow(recording: Recording) -> bool:
    """Return whether weights after SGD's first step are roughly known in a model partly in bfloat16 or float16."""
    scenario = recording.scenario
    if is_exact(recording) or is_wide(recording) or dtypes(recording) <= {*SINGLE, *WIDE} or scenario.tagged:
        return False
    if is_lossy(recording) or contract_of(recording).get("average") == "sum" or scenario.optimizer != "sgd":
        return False
    return not scenario.autocast and not recording.maybe_own_rule


def has_norms(recording: Recording) -> bool:
    """Return whether the model normalises over a rank's samples, so that the large batch has a different gradient."""
    return recording.scenario.workload in WITH_NORMS


def is_exact(recording: Recording) -> bool:
    assert recording.reference is not None
    return recording.reference.notes.get("arithmetic") == EXACT
