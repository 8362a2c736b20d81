"""Options that change between steps, as a scheduler changes them: in ``param_groups``.

Special here: a scheduler knows the optimizer that the loop holds, and nothing of another that may do the work inside.
Most change the learning rate. ``OneCycleLR`` changes momentum as well, or betas; decay often has a schedule of its own,
and fine-tuning warms one group up and not the other.
"""

from __future__ import annotations

from typing import Any

from verifier.scenario import Scenario

FACTOR = 1 / 16  # a power of two: exact arithmetic stays exact; and its inverse is no usual world size


def reschedule(optimizer: Any, scenario: Scenario, step: int) -> str | None:
    """After ``step``, multiply by ``FACTOR`` what the scenario says, in every group; where they were ``alike``, in all
    but the first. What is returned says why a scheduler could not; None: it could, or there was nothing to do.
    """
    option = "lr" if step in scenario.new_lr_after else "momentum"
    if option == "momentum" and step != scenario.new_momentum_after:
        return None
    groups = getattr(optimizer, "param_groups", None)
    if groups == [] and _is_torchs(optimizer):  # torch's schedulers take it, and change nothing
        return None
    if not isinstance(groups, list) or not groups or not all(_has(group, option) for group in groups):
        return f"not all groups of the optimizer, if it has any, show a {option} that a scheduler could change"
    if scenario.alike and len(groups) < 2:
        return "the optimizer shows a single group, where it was given two"
    for group in groups[1:] if scenario.alike else groups:
        group[option] *= FACTOR
    return None


def reschedule_others(optimizer: Any, scenario: Scenario, step: int) -> bool:
    """After the step that the scenario says, multiply by ``FACTOR`` the first beta of both groups, the decay of the
    first and the rate of the second. False: a group does not show its own, and nothing was changed.
    """
    if step != scenario.new_options_after:
        return True
    groups = getattr(optimizer, "param_groups", None)
    if not isinstance(groups, list) or len(groups) != 2 or not all(_has_all(group) for group in groups):
        return False
    for group in groups:
        first, *others = group["betas"]
        group["betas"] = (first * FACTOR, *others)
    groups[0]["weight_decay"] *= FACTOR
    groups[1]["lr"] *= FACTOR
    return True


def _is_torchs(optimizer: Any) -> bool:
    """Is it one of ``torch.optim.Optimizer``'s kind? Asked without importing torch, as judging needs none."""
    kinds = {f"{kind.__module__}.{kind.__name__}" for kind in type(optimizer).__mro__}
    return "torch.optim.optimizer.Optimizer" in kinds


def _has_all(group: Any) -> bool:
    return all(_has(group, option) for option in ("betas", "weight_decay", "lr"))


def _has(group: Any, option: str) -> bool:
    """Can it be multiplied? None, as Adafactor's ``lr``, says that the optimizer has a schedule of its own."""
    return isinstance(group, dict) and group.get(option) is not None
