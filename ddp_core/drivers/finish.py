"""Finish style: asynchronous work is completed by ``finish_gradient_synchronization()`` before the step.

The style of Stanford's CS336 assignments and of most wrappers with asynchronous hooks; Megatron calls it
``finish_grad_sync()``. A wrapper that also has ``sync_gradients()`` is driven in this style: its hooks have already
launched the work. Other names of that kind, such as ``wait_all_communications()``, are accepted as a guess if no other
style knows a name that the wrapper has. For an object that cannot be called on inputs, the verb alone is enough.

Some leave the launch to the loop as well: ``start_gradient_synchronization()``, or a ``reduce_gradients()`` that starts
asynchronous work and waits for nothing. That is called first, unless the wrapper calls it by itself, or has hooks of
its own: those launch, and the method is for who goes without.
"""

from __future__ import annotations

import re
from typing import Any

import torch
from torch import nn

from ddp_core.driver import Driver, runs
from ddp_core.drivers import explicit
from ddp_core.methods import CalledByLoop, backward_through, first_of, is_bound_elsewhere, leads_to, mentions, require

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


VERBS = {"finish", "finalize", "wait", "complete", "drain"}
ALONE = {"finish", "wait", "drain"}  # and not finalize(), which may be for the end of all training
OBJECTS = {  # what may be finished, one or several; any other word, as in 'finish_training', may mean anything
    "all", "allreduce", "backward", "bucket", "collective", "comm", "communication", "for", "grad", "gradient",
    "handle", "of", "on", "op", "outstanding", "pending", "queue", "reduce", "reduction", "request", "sync",
    "synchronization", "the", "work",
}  # fmt: skip
STARTS = re.compile("^(start|launch|begin|issue)_.*(grad|sync|reduc|comm)")
HOOKS = {"register_post_accumulate_grad_hook", "register_hook", "register_multi_grad_hook", "queue_callback"}
OF_OTHER_STYLES = ("step", "wrap_optimizer", "reshard", "broadcast_parameters")


class FinishDriver(Driver):
    style = "finish"
    specificity = 20

    def __init__(self, wrapped: Any, model: nn.Module | None = None) -> None:
        super().__init__(wrapped, model)
        finish = require(self.wrapped, _method_of(self.wrapped), NAME)
        names = [name for name in (_started_by(self.wrapped, finish), finish) if name is not None]
        self.calls = [CalledByLoop(self.wrapped, name) for name in names]

    @classmethod
    def fits(cls, wrapped: Any) -> bool:
        return _method_of(wrapped) is not None

    def start_step(self, optimizer: torch.optim.Optimizer) -> None:
        super().start_step(optimizer)
        for call in self.calls:
            call.heed(optimizer)

    def backward(self, loss: torch.Tensor) -> None:
        for call in self.calls:
            call.forget()
        backward_through(self.wrapped, loss)

    def before_step(self) -> None:
        for call in self.calls:
            call()


def left_to_loop(wrapped: Any) -> CalledByLoop | None:
    """Return the known method that finishes or synchronises gradients, if ``step`` does not call it; else None."""
    name = first_of(wrapped, (NAME, *OTHER_NAMES)) or explicit.method_of(wrapped)
    return None if name is None or leads_to(wrapped, "step", name) else CalledByLoop(wrapped, name)


class AsksTheOptimizer(Driver):
    """A loop whose optimizer may have a method that is called before its ``step()``."""

    _reduces: CalledByLoop | None = None

    def ask(self, optimizer: Any) -> None:
        """Look for such a method of ``optimizer``, which was just made."""
        self._reduces = _left_by_optimizer(optimizer)

    def backward(self, loss: torch.Tensor) -> None:
        if self._reduces is not None:
            self._reduces.forget()
        super().backward(loss)

    def before_step(self) -> None:
        if self._reduces is not None:
            self._reduces()


def _left_by_optimizer(optimizer: Any) -> CalledByLoop | None:
    """Return the known method of ``optimizer`` that a loop calls before ``step()``. None: it has none, ``step()`` calls
    it, or a hook holds it.
    """
    name = first_of(optimizer, (NAME, *OTHER_NAMES, explicit.NAME, *explicit.OTHER_NAMES))
    if name is None or leads_to(optimizer, "step", name) or is_bound_elsewhere(getattr(optimizer, name)):
        return None
    return CalledByLoop(optimizer, name)


def _method_of(wrapped: Any) -> str | None:
    return first_of(wrapped, (NAME, *OTHER_NAMES)) or _guessed(wrapped)


def _guessed(wrapped: Any) -> str | None:
    """Return the only method without arguments that is named after finishing something. None: none, or several."""
    other = explicit.method_of(wrapped)
    starts = other is not None and _only_starts(wrapped, other)
    if (other is not None and not starts) or any(hasattr(wrapped, name) for name in OF_OTHER_STYLES):
        return None
    alone = starts or not runs(wrapped)
    found = [name for name in dir(type(wrapped)) if _is_such_a_name(name, alone=alone) and first_of(wrapped, (name,))]
    return found[0] if len(found) == 1 else None


def _started_by(wrapped: Any, finish: str) -> str | None:
    """Return the method without arguments that launches what ``finish`` completes, if a loop has to call it."""
    if mentions(wrapped, HOOKS):
        return None
    named = [name for name in dir(type(wrapped)) if STARTS.search(name) and first_of(wrapped, (name,))]
    known = [name for name in (explicit.method_of(wrapped),) if name not in (None, finish)]
    launching = (name for name in (*named, *known) if name and _only_starts(wrapped, name))
    return next((name for name in launching if not leads_to(wrapped, finish, name)), None)


def _only_starts(wrapped: Any, name: str) -> bool:
    """Return whether the method's code starts asynchronous work, and waits for none."""
    return leads_to(wrapped, name, "async_op") and not leads_to(wrapped, name, "wait")


def _is_such_a_name(name: str, *, alone: bool) -> bool:
    verb, *objects = name.split("_")
    if not objects:
        return alone and verb in ALONE
    return verb in VERBS and OBJECTS.issuperset(word.removesuffix("s") for word in objects)


DRIVER = FinishDriver
