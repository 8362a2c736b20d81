"""Explicit style: the loop calls ``sync_gradients()`` after the last backward, before the step.

The style of most first implementations; the wrapper need not be an ``nn.Module``. Others call the method otherwise:
``average_gradients()``, ``all_reduce_grads()`` as fairseq does; such a name may also be the wrapper's own business.
What only stands beside the model may say no more than ``reduce()``, as apex's ``Reducer`` does.
"""

from __future__ import annotations

from itertools import product
from typing import Any

import torch
from torch import nn

from ddp_core.driver import Driver, runs
from ddp_core.methods import CalledByLoop, backward_through, first_of, takes

NAME = "sync_gradients"
VERBS = ("sync", "synchronize", "average", "all_reduce", "allreduce", "reduce", "avg", "aggregate")
NOUNS = ("gradients", "grads", "grad")
OTHER_NAMES = (*map("_".join, product(VERBS, NOUNS)), "allreduce_params")


class ExplicitDriver(Driver):
    style = "explicit"
    specificity = 10

    def __init__(self, wrapped: Any, model: nn.Module | None = None) -> None:
        super().__init__(wrapped, model)
        self._synchronize = CalledByLoop(self.wrapped, method_of(self.wrapped) or NAME)

    @classmethod
    def fits(cls, wrapped: Any) -> bool:
        return method_of(wrapped) is not None and not steps_by_itself(wrapped)

    def backward(self, loss: torch.Tensor) -> None:
        self._synchronize.forget()
        backward_through(self.wrapped, loss)

    def before_step(self) -> None:
        self._synchronize()


def method_of(wrapped: Any) -> str | None:
    return first_of(wrapped, (NAME, *OTHER_NAMES, *(() if runs(wrapped) else VERBS)))


def steps_by_itself(wrapped: Any) -> bool:
    """Does it stand beside the model as an optimizer does, with ``step()`` and ``zero_grad()``?"""
    return not runs(wrapped) and all(takes(getattr(wrapped, name, None), 0) for name in ("step", "zero_grad"))


DRIVER = ExplicitDriver
