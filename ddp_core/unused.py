"""Parameters that took no part: how "nobody used this" crosses the wire without a byte or a call of its own.

Every rank must bring something to every collective, or the collectives pair wrongly from there on. A rank that did not
use a parameter brings zeros. But if *no* rank used it, its gradient has to stay None, as in a single process: an
optimizer with weight decay or momentum moves a parameter with a zero gradient, and leaves one without alone.

Special here: absent gradients are sent as *minus* zero. In IEEE arithmetic a sum is -0.0 only if every term is, so a
parameter that arrives as -0.0 was used by nobody; and a rank that did use it makes sure, by adding +0.0, that its
first element is not -0.0 by chance. torch's DDP needs an all-reduce of a bitmap for the same
(``find_unused_parameters=True``), and without it fails at the next forward.
"""

from __future__ import annotations

import torch
from torch import nn


def absent_gradient(parameter: nn.Parameter) -> torch.Tensor:
    """What a rank that did not use ``parameter`` sends: -0.0 everywhere, in the parameter's shape and layout."""
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
    """Is ``summed``, an all-reduced gradient, one that every rank sent as absent? False for an empty one."""
    if not summed.numel():
        return False
    first = _real(summed)[(0,) * _real(summed).dim()]
    return bool((first == 0) & torch.signbit(first))


def _real(tensor: torch.Tensor) -> torch.Tensor:
    return torch.view_as_real(tensor) if tensor.is_complex() else tensor
