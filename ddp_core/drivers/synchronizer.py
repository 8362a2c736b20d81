"""Synchroniser style: an object beside a bare model, whose methods are given the model.

The loop calls ``broadcast_parameters(model)`` once, before the first forward, even if ``wrap`` has already done so, and
``sync_gradients(model)`` before each step, by these names or others for the same. An argument named ``parameters`` or
``optimizer`` gets those. The model itself runs bare.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

from ddp_core.driver import Driver, runs
from ddp_core.drivers import explicit
from ddp_core.methods import first_of, is_about_one, takes, what_it_asks_for

BROADCASTS = (
    "broadcast_parameters",
    "broadcast_params",
    "broadcast_weights",
    "broadcast_model",
    "sync_parameters",
    "sync_params",
)


class SynchronizerDriver(Driver):
    style = "synchronizer"
    specificity = 30
    wraps_forward = False

    def __init__(self, wrapped: Any, model: nn.Module) -> None:
        super().__init__(wrapped, model)
        self._stepped: Any = None
        self._broadcasts = _broadcasting(wrapped)

    @classmethod
    def fits(cls, wrapped: Any) -> bool:
        """Return whether it does not run, and has a method for one argument, or for none beside a broadcasting one."""
        if runs(wrapped):
            return False
        alone = _synchronizing(wrapped, 0) is not None and _broadcasting(wrapped) is not None
        return alone or _synchronizing(wrapped, 1) is not None

    def start_step(self, optimizer: torch.optim.Optimizer) -> None:
        self._stepped = optimizer

    def forward(self, *inputs: torch.Tensor, **named: torch.Tensor) -> Any:
        if self._broadcasts is not None:
            name, self._broadcasts = self._broadcasts, None
            self._call(name)
        return self.model(*inputs, **named)

    def before_step(self) -> None:
        name = _synchronizing(self.wrapped, 0) or _synchronizing(self.wrapped, 1)
        assert name is not None
        self._call(name)

    def _call(self, name: str) -> None:
        method = getattr(self.wrapped, name)
        if takes(method, 0):
            method()
        else:
            method(what_it_asks_for(method, self.model, self._stepped))

    def named_parameters(self) -> list[tuple[str, nn.Parameter]]:
        return list(self.model.named_parameters())


def _synchronizing(wrapped: Any, num_arguments: int) -> str | None:
    names = (
        name for name in (explicit.NAME, *explicit.OTHER_NAMES) if takes(getattr(wrapped, name, None), num_arguments)
    )
    return next((name for name in names if not is_about_one(getattr(wrapped, name))), None)


def _broadcasting(wrapped: Any) -> str | None:
    return first_of(wrapped, BROADCASTS, 1) or first_of(wrapped, BROADCASTS, 0)


DRIVER = SynchronizerDriver
