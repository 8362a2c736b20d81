"""Step-with style: a wrapper whose ``step(optimizer)`` the loop calls in place of ``optimizer.step()``.

The wrapper reduces gradients there, and steps the optimizer that it is given. Before that, gradients can only be
clipped by a ``clip_grad_norm_()`` of its own. If it has a ``sync_gradients()``, or a method of a like name, that
``step()`` does not call, the loop calls it before; gradients can then be clipped between the two. A loss scaler has
``scale(loss)`` and ``update()`` as well, as torch's has: they are called before the backward and after the step.
"""

from __future__ import annotations

import inspect
from typing import Any

import torch
from torch import nn

from ddp_core.driver import Driver
from ddp_core.drivers.finish import left_to_loop
from ddp_core.methods import CalledByLoop, backward_through, takes


class StepWithDriver(Driver):
    style = "step_with"
    specificity = 22  # more than *backward*, *explicit* and *finish*: of a wrapper with both methods, both are called
    _synchronize: CalledByLoop | None = None  # a subclass may do without our ``__init__``

    def __init__(self, wrapped: Any, model: nn.Module | None = None) -> None:
        super().__init__(wrapped, model)
        self._synchronize = left_to_loop(self.wrapped)

    @classmethod
    def fits(cls, wrapped: Any) -> bool:
        step = getattr(wrapped, "step", None)
        if step is None or not takes(step, 1) or takes(step, 0):
            return False
        return next(iter(inspect.signature(step).parameters)) in ("optimizer", "optim", "opt")

    def backward(self, loss: torch.Tensor) -> None:
        if self._synchronize is not None:
            self._synchronize.forget()
        backward_through(self.wrapped, self.wrapped.scale(loss) if self._scales else loss)

    def before_step(self) -> None:
        if self._synchronize is not None:
            self._synchronize()

    @property
    def can_clip(self) -> bool:
        """If gradients are final before ``step(optimizer)``, and no ``backward(loss)`` of its own scales them."""
        scaled = self._scales or callable(getattr(self.wrapped, "backward", None))
        final = self._synchronize is not None and not scaled
        return final or self.own_clip is not None

    def step(self, optimizer: torch.optim.Optimizer) -> None:
        self.wrapped.step(optimizer)
        if self._scales and takes(getattr(self.wrapped, "update", None), 0):
            self.wrapped.update()

    @property
    def _scales(self) -> bool:
        return takes(getattr(self.wrapped, "scale", None), 1)


DRIVER = StepWithDriver
