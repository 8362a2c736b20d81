"""Optimizer wrapper: the strategy is (also) an optimizer, built by ``wrap_optimizer(cls, parameters, **options)``.

The style of sharded optimizers (ZeRO stage 1): gradients as with a native wrapper, state spread over the ranks.
``wrap_optimizer`` is a method of what was wrapped, or a function beside ``wrap``. A strategy with other methods for a
loop is driven in their style; ``make_optimizer`` calls ``wrap_optimizer`` in any. If the optimizer has a
``sync_gradients()`` that its ``step()`` does not call, the loop does.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

from ddp_core.driver import WRAP_OPTIMIZER, Driver
from ddp_core.drivers.finish import left_by_optimizer
from ddp_core.methods import CalledByLoop


class OptimizerWrapperDriver(Driver):
    style = "optimizer_wrapper"
    specificity = 8
    _reduces: CalledByLoop | None = None

    @classmethod
    def fits(cls, wrapped: Any) -> bool:
        return callable(getattr(wrapped, WRAP_OPTIMIZER, None))

    def make_optimizer(
        self, cls: type[torch.optim.Optimizer], parameters: list[nn.Parameter], **options: Any
    ) -> torch.optim.Optimizer:
        made = super().make_optimizer(cls, parameters, **options)
        self._reduces = left_by_optimizer(made)
        return made

    def backward(self, loss: torch.Tensor) -> None:
        if self._reduces is not None:
            self._reduces.forget()
        super().backward(loss)

    def before_step(self) -> None:
        if self._reduces is not None:
            self._reduces()


DRIVER = OptimizerWrapperDriver
