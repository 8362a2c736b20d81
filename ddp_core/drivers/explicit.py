"""Explicit style: the loop calls ``sync_gradients()`` after the last backward, before the step.

The style of most first implementations; the wrapper need not be an ``nn.Module``.
"""

from __future__ import annotations

from typing import Any

from ddp_core.driver import Driver


class ExplicitDriver(Driver):
    style = "explicit"
    specificity = 10

    @classmethod
    def fits(cls, wrapped: Any) -> bool:
        return callable(wrapped) and callable(getattr(wrapped, "sync_gradients", None))

    def before_step(self) -> None:
        self.wrapped.sync_gradients()


DRIVER = ExplicitDriver
