"""Explicit style: the loop calls ``sync_gradients()`` after the last backward, before the step.

The style of most first implementations; the wrapper need not be an ``nn.Module``. The method may have other names:
``average_gradients()``, or ``all_reduce_grads()`` as in fairseq; the wrapper may also call such a method by itself. An
object that only stands beside the model may have a mere ``reduce()``, as apex's ``Reducer`` does, and so may a wrapper
with a ``backward(loss)``. A method with one argument gets the model, parameters or the optimizer, by its name.
"""

from __future__ import annotations

from itertools import product
from typing import Any

import torch
from torch import nn

from ddp_core.driver import Driver, runs
from ddp_core.methods import (
    CalledByLoop,
    backward_through,
    first_of,
    leads_to,
    require,
    says_what_it_asks_for,
    takes,
    what_it_asks_for,
)

NAME = "sync_gradients"
VERBS = ("average", "all_reduce", "allreduce", "reduce", "avg", "aggregate", "synchronize", "sync")
OF_WEIGHTS_TOO = ("synchronize", "sync")  # of weights, at the start, if another verb is of gradients
NOUNS = ("gradients", "grads", "grad")
BESIDE_A_BACKWARD = ("synchronize", "all_reduce", "allreduce", "reduce")  # and not sync(), which may be of weights
OTHER_NAMES = (*map("_".join, product(VERBS, NOUNS)), "allreduce_params", "reduce_parameters")  # the last: skrl, rsl_rl


class ExplicitDriver(Driver):
    style = "explicit"
    specificity = 10

    def __init__(self, wrapped: Any, model: nn.Module | None = None) -> None:
        super().__init__(wrapped, model)
        asks = None if method_of(self.wrapped) else _method_for_one(self.wrapped)
        self._asks = None if asks is None else getattr(self.wrapped, asks)
        self._synchronize = CalledByLoop(self.wrapped, require(self.wrapped, method_of(self.wrapped) or asks, NAME))
        self._given: tuple[Any, ...] = ()

    @classmethod
    def fits(cls, wrapped: Any) -> bool:
        known = method_of(wrapped) or _method_for_one(wrapped)
        return known is not None and not steps_by_itself(wrapped)

    def start_step(self, optimizer: torch.optim.Optimizer) -> None:
        super().start_step(optimizer)
        self._synchronize.heed(optimizer)
        if self._asks is not None:
            self._given = (what_it_asks_for(self._asks, self.model, optimizer),)

    def backward(self, loss: torch.Tensor) -> None:
        self._synchronize.forget()
        backward_through(self.wrapped, loss)

    def before_step(self) -> None:
        self._synchronize(*self._given)


def method_of(wrapped: Any) -> str | None:
    verbs = VERBS if not runs(wrapped) else BESIDE_A_BACKWARD if takes(getattr(wrapped, "backward", None), 1) else ()
    found = first_of(wrapped, (NAME, *OTHER_NAMES, *verbs))
    if found is not None and found in verbs and found not in OF_WEIGHTS_TOO:
        whole = (name for name in OF_WEIGHTS_TOO if name in verbs and takes(getattr(wrapped, name, None), 0))
        return next((name for name in whole if leads_to(wrapped, name, found)), found)
    return found


def _method_for_one(wrapped: Any) -> str | None:
    """Return the method of a wrapper that takes the model, parameters or the optimizer."""
    kind = type(wrapped)
    known = (name for name in (NAME, *OTHER_NAMES) if runs(wrapped) and callable(getattr(kind, name, None)))
    return next((name for name in known if says_what_it_asks_for(getattr(wrapped, name))), None)


def steps_by_itself(wrapped: Any) -> bool:
    """Return whether it stands beside the model as an optimizer does, with ``step()`` and ``zero_grad()``."""
    return not runs(wrapped) and all(takes(getattr(wrapped, name, None), 0) for name in ("step", "zero_grad"))


DRIVER = ExplicitDriver
