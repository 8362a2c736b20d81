"""A learning rate that changes between two steps, as a scheduler changes it: in the optimizer's ``param_groups``.

Special here: a scheduler knows the optimizer that the loop holds, and nothing of another that may do the work inside.
"""

from __future__ import annotations

from typing import Any

FACTOR = 1 / 16  # a power of two: exact arithmetic stays exact; and its inverse is no usual world size


def change_learning_rate(optimizer: Any) -> str | None:
    """Multiply every group's ``lr`` by ``FACTOR``. What is returned says why a scheduler could not; None: it could."""
    groups = getattr(optimizer, "param_groups", None)
    if not isinstance(groups, list) or not groups or not all(isinstance(g, dict) and "lr" in g for g in groups):
        return "the optimizer has no param_groups in which a scheduler could change the learning rate"
    for group in groups:
        group["lr"] *= FACTOR
    return None
