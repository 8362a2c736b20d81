"""A gradient that is infinite on one rank, or no number, put in at the parameter before any wrapper's hook sees it.

Special here: it is put in where tags are (``late_tags``), so a strategy that reduces in front of the parameter would
meet it after the sum, on that rank alone. Every rank therefore notes what arrives there, by which this is seen.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import torch
from torch import nn

from verifier.journal import digest
from verifier.run.together import any_rank_says
from verifier.scenario import Scenario
from verifier.spikes import is_spiked
from verifier.uncompiled import uncompiled

if TYPE_CHECKING:
    from verifier.worker import Subject


def overflow(scenario: Scenario, rank: int, model: nn.Module, *, step: Callable[[], int]) -> dict[str, str] | None:
    """In a ``step`` in which ``rank`` is spiked, have the gradient of the largest parameter come out as the scenario's
    spike, infinite or no number; else it is only looked at.

    Returns what will hold, by the parameter's name, the digest of what last arrived and was not zero. None: this is
    another scenario.
    """
    if not scenario.overflow:
        return None
    arrived: dict[str, str] = {}
    name, largest = max(((n, p) for n, p in model.named_parameters() if p.requires_grad), key=lambda of: of[1].numel())

    @uncompiled
    def replace(gradient: torch.Tensor) -> torch.Tensor:
        if type(gradient) is torch.Tensor and gradient.any():
            arrived[name] = digest(gradient)
        spikes = is_spiked(scenario, rank, step())
        return torch.full_like(gradient, float(scenario.spike)) if spikes else gradient

    largest.register_hook(replace)
    return arrived


def finite_everywhere(subject: Subject, step: int) -> bool:
    """Are all weights of all ranks finite after ``step``: has whoever met the infinity left out the step, or what was
    infinite?
    """
    own = all(bool(torch.isfinite(parameter).all()) for _, parameter in subject.parameters)
    return not any_rank_says(subject, f"not_finite/{step}", not own)
