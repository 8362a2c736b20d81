"""Step-with style: a wrapper whose ``step(optimizer)`` the loop calls in the place of ``optimizer.step()``.

The wrapper reduces gradients there, and steps the optimizer that it is handed. Nothing can be clipped before that, but
by a ``clip_grad_norm_()`` of its own.
"""

from __future__ import annotations

import inspect
from typing import Any

import torch

from ddp_core.driver import Driver
from ddp_core.methods import backward_through, takes


class StepWithDriver(Driver):
    style = "step_with"
    specificity = 7  # more than *backward*: what has both is of this style, and has both called

    @classmethod
    def fits(cls, wrapped: Any) -> bool:
        step = getattr(wrapped, "step", None)
        if step is None or not takes(step, 1) or takes(step, 0):
            return False
        return next(iter(inspect.signature(step).parameters)) in ("optimizer", "optim", "opt")

    def backward(self, loss: torch.Tensor) -> None:
        backward_through(self.wrapped, loss)

    @property
    def can_clip(self) -> bool:
        return self.own_clip is not None

    def step(self, optimizer: torch.optim.Optimizer) -> None:
        self.wrapped.step(optimizer)


DRIVER = StepWithDriver
