"""Finish style: asynchronous work is completed by ``finish_gradient_synchronization()`` before the step.

The style of Stanford's CS336 assignments and of most wrappers with asynchronous hooks. A wrapper that also has
``sync_gradients()`` is driven in this style: its hooks have already launched the work.
"""

from __future__ import annotations

from typing import Any

from ddp_core.driver import Driver


class FinishDriver(Driver):
    style = "finish"
    specificity = 20

    @classmethod
    def fits(cls, wrapped: Any) -> bool:
        return callable(wrapped) and callable(getattr(wrapped, "finish_gradient_synchronization", None))

    def before_step(self) -> None:
        self.wrapped.finish_gradient_synchronization()


DRIVER = FinishDriver
