"""Backward style: the loop calls the wrapper's ``backward(loss)`` in place of ``loss.backward()``.

As with an engine, but the optimizer stays the loop's own.
"""

from __future__ import annotations

from typing import Any

import torch

from ddp_core.driver import Driver
from ddp_core.methods import takes


class BackwardDriver(Driver):
    style = "backward"
    specificity = 5

    @classmethod
    def fits(cls, wrapped: Any) -> bool:
        return takes(getattr(wrapped, "backward", None), 1)

    def backward(self, loss: torch.Tensor) -> None:
        self.wrapped.backward(loss)


DRIVER = BackwardDriver
