"""Marks gradients of unused parameters, so that ranks learn "no rank used this" without extra bytes or calls.

Every rank must take part in every collective, or later collectives pair wrongly. A rank that did not use a parameter
sends zeros. But if *no* rank used it, its gradient must stay None, as in a single process: an optimizer with weight
decay or momentum moves a parameter with a zero gradient, but skips one with None.

Special here: absent gradients are sent as *minus* zero. In IEEE arithmetic a sum is -0.0 only if every term is, so a
sum of -0.0 shows that no rank used the parameter. A rank that used it adds +0.0 to its first element, so that this
element is not -0.0 by chance. torch's DDP needs an all-reduce of a bitmap for the same
(``find_unused_parameters=True``), and without it fails at the next forward.
"""

from __future__ import annotations

import torch
from torch import nn


def absent_gradient(parameter: nn.Parameter) -> torch.Tensor:
    """The gradient to send for an unused ``parameter``: -0.0 everywhere, in the parameter's shape and layout."""
    return mark_absent(torch.empty_like(parameter, memory_format=torch.preserve_format).detach())


def mark_absent(gradient: torch.Tensor) -> torch.Tensor:
    """Fill ``gradient`` with -0.0, in place."""
    with torch.no_grad():
        _real(gradient).fill_(-0.0)
    return gradient


def mark_present(gradient: torch.Tensor) -> None:
    """Make sure that the first element is not -0.0, in place; no other number changes."""
    if gradient.numel():
        with torch.no_grad():
            _real(gradient)[(0,) * _real(gradient).dim()].add_(0.0)


def nobody_used(summed: torch.Tensor) -> bool:
    """Return whether every rank sent the all-reduced gradient ``summed`` as absent. False for an empty one."""
    if not summed.numel():
        return False
    first = _real(summed)[(0,) * _real(summed).dim()]
    return bool((first == 0) & torch.signbit(first))


def _real(tensor: torch.Tensor) -> torch.Tensor:
    return torch.view_as_real(tensor) if tensor.is_complex() else tensor
