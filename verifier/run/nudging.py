"""Adds a small number to every gradient of one rank alone, to measure what an update rule makes of roundings.

Special here: one number is added everywhere, far above roundings of the model's dtype. A gradient element that is
nothing but roundings, or a momentum that cancels, then takes its sign.
"""

from __future__ import annotations

import torch
from torch import nn

from verifier.uncompiled import uncompiled


def nudge(model: nn.Module, by: float) -> None:
    """Add ``by`` to every element of every gradient that ``model`` gets, before anything of a strategy's sees it."""

    @uncompiled
    def nudged(gradient: torch.Tensor) -> torch.Tensor:
        return gradient if gradient.is_sparse else gradient + by

    for parameter in model.parameters() if by else ():
        if parameter.requires_grad:
            parameter.register_hook(nudged)
