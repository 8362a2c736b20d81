"""What a fault is: a mistake planted in a correct strategy, with exactly the checks that must catch it.

Special here: a fault changes the strategy's own code path (the average, the launch, the wait), not the resulting
numbers. So checks must catch the mistake as people make it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from verifier import catalogue

Plant = Callable[[Any, Callable[[Any], Any]], Any]


@dataclass(frozen=True)
class Fault:
    """``plant(model, wrap)`` returns the wrapped model with the mistake in it."""

    name: str
    trips: frozenset[str]
    cause: str
    applies_to: tuple[str, ...]
    plant: Plant


def fault(*, trips: set[str], cause: str, applies_to: tuple[str, ...]) -> Callable[[Plant], Fault]:
    """Declare a fault: the codes of exactly the checks that must fail, and the cause that must be named first."""

    def declare(plant: Plant) -> Fault:
        return Fault(plant.__module__.rpartition(".")[2], frozenset(trips), cause, applies_to, plant)

    return declare


def load(name: str) -> Fault:
    found: Fault = catalogue.FAULTS.load(name).FAULT
    return found


def applies_to(name: str) -> tuple[str, ...]:
    return load(name).applies_to
