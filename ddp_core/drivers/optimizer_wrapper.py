"""Optimizer wrapper: the strategy is (also) an optimizer, built by ``wrap_optimizer(cls, parameters, **options)``.

The style of sharded optimizers (ZeRO stage 1): gradients as with a native wrapper, state spread over the ranks.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

from ddp_core.driver import Driver


class OptimizerWrapperDriver(Driver):
    style = "optimizer_wrapper"
    specificity = 8

    @classmethod
    def fits(cls, wrapped: Any) -> bool:
        return callable(wrapped) and callable(getattr(wrapped, "wrap_optimizer", None))

    def make_optimizer(
        self, cls: type[torch.optim.Optimizer], parameters: list[nn.Parameter], **options: Any
    ) -> torch.optim.Optimizer:
        optimizer: torch.optim.Optimizer = self.wrapped.wrap_optimizer(cls, parameters, **options)
        return optimizer


DRIVER = OptimizerWrapperDriver
