"""Engine style: the wrapped object replaces the loop's own calls with ``backward(loss)`` and ``step()``.

The style of DeepSpeed and its like. The engine is given the optimizer if it has room for one (an attribute
``optimizer`` that is None); an engine that made its own keeps it. If it has a ``sync_gradients()``, or a method of a
like name, that neither of the two calls, the loop calls it before the step.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import nn

from ddp_core.driver import Driver
from ddp_core.drivers.finish import left_to_loop
from ddp_core.methods import CalledByLoop, takes


class EngineDriver(Driver):
    style = "engine"
    specificity = 25
    _synchronize: CalledByLoop | None = None  # a subclass may do without our ``__init__``

    def __init__(self, wrapped: Any, model: nn.Module | None = None) -> None:
        super().__init__(wrapped, model)
        self._synchronize = left_to_loop(self.wrapped)

    @classmethod
    def fits(cls, wrapped: Any) -> bool:
        return callable(getattr(wrapped, "backward", None)) and takes(getattr(wrapped, "step", None), 0)

    def make_optimizer(
        self, cls: type[torch.optim.Optimizer], parameters: list[nn.Parameter], **options: Any
    ) -> torch.optim.Optimizer:
        own: torch.optim.Optimizer | None = getattr(self.wrapped, "optimizer", None)
        if own is None:
            own = super().make_optimizer(cls, parameters, **options)
            self.wrapped.optimizer = own
        return own

    def backward(self, loss: torch.Tensor) -> None:
        if self._synchronize is not None:
            self._synchronize.forget()
        self.wrapped.backward(loss)

    def before_step(self) -> None:
        if self._synchronize is not None:
            self._synchronize()

    def own_zero_grad(self, optimizer: torch.optim.Optimizer) -> Callable[..., Any]:
        own = getattr(self.wrapped, "zero_grad", None)
        if own is None or getattr(own, "__func__", None) is nn.Module.zero_grad:
            return super().own_zero_grad(optimizer)
        return own

    @property
    def can_clip(self) -> bool:
        """Only by its own clipping: an engine may still reduce gradients in ``step()``."""
        return self.own_clip is not None

    def step(self, optimizer: torch.optim.Optimizer) -> None:
        self.wrapped.step()


DRIVER = EngineDriver
