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

from ddp_core.driver import WRAP_OPTIMIZER
from ddp_core.drivers.finish import AsksTheOptimizer


class OptimizerWrapperDriver(AsksTheOptimizer):
    style = "optimizer_wrapper"
    specificity = 8

    @classmethod
    def fits(cls, wrapped: Any) -> bool:
        return callable(getattr(wrapped, WRAP_OPTIMIZER, None))

    def make_optimizer(
        self, cls: type[torch.optim.Optimizer], parameters: list[nn.Parameter], **options: Any
    ) -> torch.optim.Optimizer:
        made = super().make_optimizer(cls, parameters, **options)
        self.ask(made)
        return made


DRIVER = OptimizerWrapperDriver
