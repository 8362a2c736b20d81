"""Noise: a layer that draws a random number in each forward, as dropout does, and reports it; it changes nothing.

Special here: the number that its backward uses is reported as well. A forward that is run again for the backward, to
save memory, must draw what it drew before (``preserve_rng_state`` of torch's checkpoint), or the gradient belongs to
another dropout than the loss.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

from verifier.uncompiled import uncompiled

_FORWARDS: list[float] = []
_BACKWARDS: list[float] = []


class Noise(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return _through(x)


class _Told(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, drawn: torch.Tensor) -> torch.Tensor:
        ctx.save_for_backward(drawn)
        return x.clone()

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> tuple[torch.Tensor, None]:
        _BACKWARDS.append(float(ctx.saved_tensors[0]))
        return gradient, None


@uncompiled
def _through(x: torch.Tensor) -> torch.Tensor:
    drawn = torch.rand((), dtype=torch.float64, device=x.device)
    if torch._C._current_graph_task_id() == -1:  # not inside a backward, which runs a part of it again
        _FORWARDS.append(float(drawn))
    out: torch.Tensor = _Told.apply(x, drawn)
    return out


def begin() -> None:
    """Forget the numbers reported so far."""
    _FORWARDS.clear()
    _BACKWARDS.clear()


def told() -> dict[str, list[float]]:
    """The numbers that forwards drew and that backwards used since ``begin``."""
    return {"forwards": [*_FORWARDS], "backwards": [*_BACKWARDS]}
