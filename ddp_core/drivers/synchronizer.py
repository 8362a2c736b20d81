"""Synchroniser style: an object beside a bare model, with ``broadcast_parameters`` and ``sync_gradients``.

The loop calls ``broadcast_parameters(model)`` once, before the first forward, whether or not ``wrap`` has done so
already, and ``sync_gradients(model)`` before each step. The model itself runs bare.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

from ddp_core.driver import Driver


class SynchronizerDriver(Driver):
    style = "synchronizer"
    specificity = 30
    wraps_forward = False

    def __init__(self, wrapped: Any, model: nn.Module) -> None:
        super().__init__(wrapped, model)
        self._broadcast = False

    @classmethod
    def fits(cls, wrapped: Any) -> bool:
        needed = (getattr(wrapped, name, None) for name in ("broadcast_parameters", "sync_gradients"))
        return all(callable(method) for method in needed) and not callable(wrapped)

    def forward(self, *inputs: torch.Tensor) -> Any:
        if not self._broadcast:
            self._broadcast = True
            self.wrapped.broadcast_parameters(self.model)
        return self.model(*inputs)

    def before_step(self) -> None:
        self.wrapped.sync_gradients(self.model)

    def named_parameters(self) -> list[tuple[str, nn.Parameter]]:
        return list(self.model.named_parameters())


DRIVER = SynchronizerDriver
