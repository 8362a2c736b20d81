"""Options that change between steps, as a scheduler changes them: in ``param_groups``.

Special here: a scheduler knows only the optimizer that the loop holds, not another one inside that may do the work.
Most schedulers change the learning rate. ``OneCycleLR`` changes momentum or betas as well, decay often has its own
schedule, and fine-tuning warms up one group and not the other.
"""

from __future__ import annotations

from typing import Any

from verifier.scenario import NUM_GROUPS, Scenario

FACTOR = 1 / 16  # a power of two keeps exact arithmetic exact; its inverse is no usual world size


def reschedule(optimizer: Any, scenario: Scenario, step: int) -> str | None:
    """After ``step``, multiply the option that the scenario names by ``FACTOR``, in every group; in groups made
    ``alike``, in all but the first. Return why a scheduler could not; None if it could or there was nothing to do.
    """
    option = "lr" if step in scenario.new_lr_after else "momentum"
    if option == "momentum" and step != scenario.new_momentum_after:
        return None
    groups = getattr(optimizer, "param_groups", None)
    if groups == [] and _is_torchs(optimizer):  # torch's schedulers accept it, and change nothing
        return None
    if not isinstance(groups, list) or not groups or not all(_has(group, option) for group in groups):
        return f"not all groups of the optimizer, if it has any, show a {option} that a scheduler could change"
    if scenario.alike and len(groups) < 2:
        return "the optimizer shows a single group, where it was given two"
    for group in groups[1:] if scenario.alike else groups:
        group[option] *= FACTOR
    return None


def hides_others(optimizer: Any) -> bool:
    """Return whether some group does not show the options that ``reschedule_others`` changes."""
    groups = getattr(optimizer, "param_groups", None)
    return not isinstance(groups, list) or len(groups) != NUM_GROUPS or not all(_has_all(group) for group in groups)


def reschedule_others(optimizer: Any) -> None:
    """Multiply by ``FACTOR`` the first beta of all groups, the first group's decay and the last one's rate."""
    groups = optimizer.param_groups
    for group in groups:
        first, *others = group["betas"]
        group["betas"] = (first * FACTOR, *others)
    groups[0]["weight_decay"] *= FACTOR
    groups[-1]["lr"] *= FACTOR


def _is_torchs(optimizer: Any) -> bool:
    """Return whether it is a ``torch.optim.Optimizer``, without importing torch, which judging must not need."""
    kinds = {f"{kind.__module__}.{kind.__name__}" for kind in type(optimizer).__mro__}
    return "torch.optim.optimizer.Optimizer" in kinds


def _has_all(group: Any) -> bool:
    return all(_has(group, option) for option in ("betas", "weight_decay", "lr"))


def _has(group: Any, option: str) -> bool:
    """Return whether ``option`` can be multiplied. None, as in Adafactor's ``lr``, means a schedule of its own."""
    return isinstance(group, dict) and group.get(option) is not None
