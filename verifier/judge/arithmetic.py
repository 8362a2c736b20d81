"""What kind of arithmetic a recording is of, and whose steps: what decides how gradients and weights can be compared.

Special here: it is read off the model that the single process described, and the contract; never off the numbers.
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
    """Does it declare a sum, and that this is rounded to float16, which holds less than most sums of what it holds?"""
    return contract.get("average") == "sum" and contract.get("lossy") == "float16"


def own_steps(recording: Recording) -> str | None:
    """Why the strategy's steps are not a single process's, and rightly; None: they have to be the same."""
    if contract_of(recording).get("average") == "sum":
        return "the strategy declares average='sum': its steps are longer than a single process's"
    if own := recording.ranks[0].notes.get("own_optimizer"):
        return f"the update rule is the strategy's own ({own})"
    return None


def is_lossy(recording: Recording) -> bool:
    return bool(contract_of(recording).get("lossy"))


def may_turn_over(recording: Recording) -> bool:
    """May a declared rounding, once it is in the weights, become as large as a mistake? Whole numbers often meet a relu
    at exactly 0, and a hair's breadth decides there whether a gradient passes. Smooth models judge such a strategy.
    """
    return is_lossy(recording) and is_exact(recording)


def is_wide(recording: Recording) -> bool:
    """Is the whole model in float64? One narrow layer blurs the gradients of all layers before it."""
    return dtypes(recording) <= {*WIDE}


def dtypes(recording: Recording) -> set[str]:
    assert recording.reference is not None
    return {entry["dtype"] for entry in recording.reference.notes.get("parameters", [])}


def is_single(recording: Recording) -> bool:
    """Are roundings of float32 all that makes later steps differ from the single process's, so that SINGLE_BOUND holds?

    Not under autocast, nor where something else is declared or done: a lossy wire, sums, a rule of the strategy's own.
    """
    kinds = dtypes(recording)
    if is_exact(recording) or recording.scenario.autocast or not kinds <= {*SINGLE, *WIDE} or kinds <= {*WIDE}:
        return False
    if is_lossy(recording) or contract_of(recording).get("average") == "sum" or has_norms(recording):
        return False
    return {"own_optimizer", "own_rule"}.isdisjoint(recording.ranks[0].notes)


def keeps_float64(recording: Recording, dtype: str) -> bool:
    """Is a parameter of ``dtype`` held to float64 beside others of narrower dtypes?"""
    return dtype in WIDE and "float64" not in contract_of(recording).get("disclaims", ())


def is_narrow(recording: Recording) -> bool:
    """Is it known, roughly, where SGD's first step takes weights of which some are in bfloat16 or float16?"""
    scenario = recording.scenario
    if is_exact(recording) or is_wide(recording) or dtypes(recording) <= {*SINGLE, *WIDE} or scenario.tagged:
        return False
    if is_lossy(recording) or contract_of(recording).get("average") == "sum" or scenario.optimizer != "sgd":
        return False
    return not scenario.autocast and {"own_optimizer", "own_rule"}.isdisjoint(recording.ranks[0].notes)


def has_norms(recording: Recording) -> bool:
    """Does the model normalise over the samples that a rank has, so that the large batch's gradient is another one?"""
    return recording.scenario.workload in WITH_NORMS


def is_exact(recording: Recording) -> bool:
    assert recording.reference is not None
    return recording.reference.notes.get("arithmetic") == EXACT
