"""Finish style: asynchronous work is completed by ``finish_gradient_synchronization()`` before the step.

The style of Stanford's CS336 assignments and of most wrappers with asynchronous hooks; Megatron calls it
``finish_grad_sync()``. A wrapper that also has ``sync_gradients()`` is driven in this style: its hooks have already
launched the work.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

from ddp_core.driver import Driver
from ddp_core.methods import CalledByLoop, backward_through, first_of

NAME = "finish_gradient_synchronization"
OTHER_NAMES = (
    "finish_gradient_sync",
    "finish_grad_sync",
    "finish_synchronization",
    "wait_for_gradients",
    "wait_for_grads",
    "finalize_gradients",
    "finalize_grads",
    "finalize_backward",
)


class FinishDriver(Driver):
    style = "finish"
    specificity = 20

    def __init__(self, wrapped: Any, model: nn.Module | None = None) -> None:
        super().__init__(wrapped, model)
        self._finish = CalledByLoop(self.wrapped, _method_of(self.wrapped) or NAME)

    @classmethod
    def fits(cls, wrapped: Any) -> bool:
        return _method_of(wrapped) is not None

    def backward(self, loss: torch.Tensor) -> None:
        self._finish.forget()
        backward_through(self.wrapped, loss)

    def before_step(self) -> None:
        self._finish()


def _method_of(wrapped: Any) -> str | None:
    return first_of(wrapped, (NAME, *OTHER_NAMES))


DRIVER = FinishDriver
