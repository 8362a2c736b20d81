"""A model that changes under its wrapper: a layer is frozen, unfrozen, or exchanged for a new one.

Special here: a layer that is unfrozen later is in the optimizer from the start, as in a script that passes all of
``model.parameters()``. A new layer is not, so the optimizer is made anew. The single process does the same.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import TYPE_CHECKING

from torch import nn

from verifier.scenario import Scenario

if TYPE_CHECKING:
    from verifier.worker import Subject


def trained(
    scenario: Scenario, named: Iterable[tuple[str, nn.Parameter]], frozen: Collection[str]
) -> list[tuple[str, nn.Parameter]]:
    """Return those of ``named`` that the optimizer gets: what is trained, or will be once it is unfrozen."""
    later = scenario.change == "unfreeze"
    return [(name, p) for name, p in named if p.requires_grad or (later and name not in frozen)]


def change(subject: Subject) -> None:
    """Change the model of one rank. A rank whose layer was replaced also gets a new optimizer that has it."""
    subject.late.changed()
    subject.workload.change(subject.model)
    if subject.scenario.change == "replace":
        subject.take_over(subject.driver)
