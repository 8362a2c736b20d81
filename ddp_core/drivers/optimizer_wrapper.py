"""Optimizer wrapper: the strategy is (also) an optimizer, built by ``wrap_optimizer(cls, parameters, **options)``.

The style of sharded optimizers (ZeRO stage 1): gradients as with a native wrapper, state spread over the ranks.
``wrap_optimizer`` is a method of what was wrapped, or a function beside ``wrap``. A strategy with other methods for a
loop is driven in their style; ``make_optimizer`` calls ``wrap_optimizer`` in any.
"""

from __future__ import annotations

from typing import Any

from ddp_core.driver import WRAP_OPTIMIZER, Driver


class OptimizerWrapperDriver(Driver):
    style = "optimizer_wrapper"
    specificity = 8

    @classmethod
    def fits(cls, wrapped: Any) -> bool:
        return callable(getattr(wrapped, WRAP_OPTIMIZER, None))


DRIVER = OptimizerWrapperDriver
