"""A gradient that is infinite on one rank, put in at the parameter before any wrapper's hook sees it.

Special here: it is put in where tags are (``late_tags``), so a strategy that reduces in front of the parameter would
meet it after the sum, on that rank alone. Every rank therefore notes what arrives there, by which this is seen.
"""

from __future__ import annotations

import torch
from torch import nn

from verifier.journal import digest


def overflow(model: nn.Module, *, here: bool) -> dict[str, str]:
    """Have the gradient of the largest parameter come out infinite, if ``here``; elsewhere it is only looked at.

    Returns what will hold, by the parameter's name, the digest of what last arrived and was not zero.
    """
    arrived: dict[str, str] = {}
    name, largest = max(((n, p) for n, p in model.named_parameters() if p.requires_grad), key=lambda of: of[1].numel())

    def replace(gradient: torch.Tensor) -> torch.Tensor:
        if type(gradient) is torch.Tensor and gradient.any():
            arrived[name] = digest(gradient)
        return torch.full_like(gradient, float("inf")) if here else gradient

    largest.register_hook(replace)
    return arrived
