"""An infinite, NaN or very long gradient on one rank, put in at the parameter before any wrapper's hook sees it.

Special here: it is put in where tags are (``late_tags``), so a strategy that reduces in front of the parameter would
get it after the sum, on that rank alone. To detect this, every rank notes what gradient arrives there.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

import torch
from torch import nn

from verifier.journal import digest
from verifier.run.together import any_rank_says
from verifier.scenario import Scenario
from verifier.spikes import is_spiked, spiked_micro_batch, surge
from verifier.uncompiled import uncompiled

if TYPE_CHECKING:
    from verifier.worker import Subject


def overflow(
    scenario: Scenario, rank: int, model: nn.Module, *, at: Callable[[], tuple[int, int | None]]
) -> dict[str, str] | None:
    """Make the gradient of the largest parameter the scenario's spike, infinite or NaN, in each step, and micro-batch
    of it, in which ``rank`` is spiked; where gradients surge, make those of all parameters longer. At other times they
    are only looked at. ``at``: the step and micro-batch whose backward runs.

    Returns a dictionary, filled during training: by the parameter's name, the digest of the last gradient that arrived
    and was not zero. None: the scenario has neither.
    """
    if not (scenario.overflow or scenario.surges):
        return None
    arrived: dict[str, str] = {}
    trained = [(name, parameter) for name, parameter in model.named_parameters() if parameter.requires_grad]

    @uncompiled
    def replace(name: str, gradient: torch.Tensor) -> torch.Tensor:
        if type(gradient) is torch.Tensor and gradient.any():
            arrived[name] = digest(gradient)
        step, micro = at()
        if scenario.overflow and is_spiked(scenario, rank, step) and micro == spiked_micro_batch(scenario, step):
            return torch.full_like(gradient, float(scenario.spike))
        times = surge(scenario, rank, step)
        return gradient if times == 1 else gradient * times

    for name, parameter in trained if scenario.surges else [max(trained, key=lambda of: of[1].numel())]:
        parameter.register_hook(partial(replace, name))
    return arrived


def finite_everywhere(subject: Subject, step: int) -> bool:
    """Return whether all weights of all ranks are finite after ``step``: the strategy skipped the step, or dropped the
    infinite gradient.
    """
    own = all(bool(torch.isfinite(parameter).all()) for _, parameter in subject.parameters)
    return not any_rank_says(subject, f"not_finite/{step}", not own)
