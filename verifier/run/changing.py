"""A model that changes under its wrapper: a layer is frozen, unfrozen, or exchanged for a new one.

Special here: what is unfrozen later is in the optimizer from the start, as it is where a script hands over all of
``model.parameters()``; a new layer is not, so the optimizer is made anew. The single process does the same.
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
    """Those of ``named`` that the optimizer gets: what is trained, and what will be if it is not ``frozen``."""
    later = scenario.change == "unfreeze"
    return [(name, p) for name, p in named if p.requires_grad or (later and name not in frozen)]


def change(subject: Subject) -> None:
    """Change the model of one rank. Who has another layer then needs an optimizer that has it as well."""
    subject.late.changed()
    subject.workload.change(subject.model)
    if subject.scenario.change == "replace":
        subject.take_over(subject.driver)
