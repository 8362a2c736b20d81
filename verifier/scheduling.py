"""A learning rate, or a momentum, that changes between steps, as a scheduler changes it: in ``param_groups``.

Special here: a scheduler knows the optimizer that the loop holds, and nothing of another that may do the work inside.
"""

from __future__ import annotations

from typing import Any

from verifier.scenario import Scenario

FACTOR = 1 / 16  # a power of two: exact arithmetic stays exact; and its inverse is no usual world size


def reschedule(optimizer: Any, scenario: Scenario, step: int) -> str | None:
    """After ``step``, multiply by ``FACTOR``, in every group, what the scenario says. What is returned says why a
    scheduler could not; None: it could, or there was nothing to do.
    """
    option = "lr" if step in scenario.new_lr_after else "momentum"
    if option == "momentum" and step != scenario.new_momentum_after:
        return None
    groups = getattr(optimizer, "param_groups", None)
    if not isinstance(groups, list) or not groups or not all(_has(group, option) for group in groups):
        return f"the optimizer has no param_groups in which a scheduler could change {option}"
    for group in groups:
        group[option] *= FACTOR
    return None


def _has(group: Any, option: str) -> bool:
    """Can it be multiplied? None, as Adafactor's ``lr``, says that the optimizer has a schedule of its own."""
    return isinstance(group, dict) and group.get(option) is not None
