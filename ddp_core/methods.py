"""Methods that a loop is meant to call, found by the names that people give them.

Special here: a name is a guess at who calls it. What the wrapper turns out to call by itself, from a hook or from a
callback at the end of the backward, is not called a second time. That is seen once, in the first step: a wrapper that
forgets it in a later one gets no help.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from types import CodeType, FunctionType
from typing import Any

from torch import nn

_SOUNDS_LIKE_A_LOOPS = re.compile(
    "sync|reduce|average|grad|backward|finish|finali[sz]e|wait|flush|drain|^(train|training|fit|run)_(step|batch)$"
)
_NO_PART_OF_A_STEP = re.compile("^(_|get_|set_|has_|is_|register_|no_sync|zero_grad|clip_|join)|hook|broadcast")


ONE_OF_MANY = ("grad", "gradient", "g", "param", "parameter", "p", "tensor", "bucket")


class NotDrivable(TypeError):
    """No style of loop fits what was given, or it asks for what a loop does not know: in whatever situation."""


def first_of(owner: Any, names: Iterable[str], num_arguments: int = 0) -> str | None:
    """The first of ``names`` that ``owner`` has as a method for ``num_arguments`` arguments. None: it has none."""
    return next((name for name in names if takes(getattr(owner, name, None), num_arguments)), None)


def require(owner: Any, found: str | None, usual: str) -> str:
    """``found``, the name of a method of ``owner``'s. Raises NotDrivable where there is none for this style."""
    if found is None:
        raise NotDrivable(
            f"{type(owner).__name__} has no {usual}(), and no other method without arguments of such a name: choose "
            "another --driver, or write a ddp_core.Driver that says what the loop calls (docs/driving.md)"
        )
    return found


def takes(method: Any, num_arguments: int, **named: Any) -> bool:
    """Can ``method`` be called with so many arguments by position, and with those of these names?"""
    if not callable(method):
        return False
    try:
        inspect.signature(method).bind(*[None] * num_arguments, **named)
    except (TypeError, ValueError):
        return False
    return True


def backward_through(wrapped: Any, loss: Any) -> None:
    """``wrapped.backward(loss)``, where there is one for a loop to call; else ``loss.backward()``."""
    if takes(getattr(wrapped, "backward", None), 1):
        wrapped.backward(loss)
    else:
        loss.backward()


def that_a_loop_may_call(owner: Any) -> list[str]:
    """Public methods of ``owner``'s own class, not torch's or ours, that sound like a part of a training step."""
    bases = (kind for kind in type(owner).__mro__ if kind.__module__.split(".")[0] in ("torch", "ddp_core"))
    known = {name for kind in bases for name in vars(kind)} | set(dir(nn.Module))
    methods = (name for name in dir(type(owner)) if name not in known and callable(getattr(type(owner), name, None)))
    named = [n for n in methods if _SOUNDS_LIKE_A_LOOPS.search(n) and not _NO_PART_OF_A_STEP.search(n)]
    return [n for n in named if not is_about_one(getattr(owner, n))]


def what_it_asks_for(method: Callable[..., Any], model: nn.Module, optimizer: Any, name: str | None = None) -> Any:
    """For the argument ``name`` of ``method``, or its first, by its name: parameters, named or not, or in groups, the
    optimizer, or the model (or models, of which there is one).
    """
    name = name or next(iter(inspect.signature(method).parameters))
    if "param" in name and "group" in name:
        return optimizer.param_groups
    if "param" in name and "named" in name:
        return list(model.named_parameters())
    if "param" in name:
        return list(model.parameters())
    if name in ("modules", "models"):
        return [model]
    return optimizer if "optim" in name or name == "opt" else model


def says_what_it_asks_for(method: Any) -> bool:
    """Is ``method`` for one argument, and does its name say that it is the model, parameters or an optimizer?"""
    if not takes(method, 1) or takes(method, 0):
        return False
    name = next(iter(inspect.signature(method).parameters))
    return "param" in name or "optim" in name or name in ("opt", "model", "module", "models", "modules", "net")


def is_about_one(method: Callable[..., Any]) -> bool:
    """Is ``method`` called for each gradient, parameter or bucket, by a hook, and not for all of them by a loop?"""
    try:
        return next(iter(inspect.signature(method).parameters), None) in ONE_OF_MANY
    except (TypeError, ValueError):  # written in C
        return False


def leads_to(owner: Any, start: str, name: str) -> bool:
    """Does the code of ``owner``'s method ``start`` name ``name``, or lead to a method of its own, or a function beside
    its class, that does? What an attribute is bound to counts by its name.
    """
    seen, left = set[FunctionType](), [*_methods(owner, start)]
    while left:
        if (function := left.pop()) in seen:
            continue
        seen.add(function)
        for word in _names_in(function.__code__):
            bound = getattr(vars(owner).get(word), "__name__", word) if hasattr(owner, "__dict__") else word
            if name in (word, bound):
                return True
            left += _methods(owner, bound)
            beside = function.__globals__.get(word)
            if isinstance(beside, FunctionType) and beside.__module__ == function.__module__:
                left.append(beside)
    return False


def _methods(owner: Any, name: str) -> Iterator[FunctionType]:
    """The method ``name`` of each of ``owner``'s classes, but torch's."""
    for kind in type(owner).__mro__:
        found = inspect.unwrap(vars(kind)[name]) if callable(vars(kind).get(name)) else None
        if isinstance(found, FunctionType) and kind.__module__.split(".")[0] != "torch":
            yield found


def _names_in(code: CodeType) -> Iterator[str]:
    """The names in ``code``, and in the functions that stand in it."""
    yield from code.co_names
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _names_in(constant)


class CalledByLoop:
    """A method of ``owner`` to call once a step, unless its owner has done so by itself in the first one."""

    def __init__(self, owner: Any, name: str) -> None:
        self._owner, self._name = owner, name
        self._method: Callable[..., Any] = getattr(owner, name)
        self._decided = self._owners_own = False
        self._watch()

    def __call__(self, *given: Any) -> None:
        """The loop's turn to call it."""
        if not self._decided:
            self._decided = True
            with suppress(AttributeError, KeyError):
                delattr(self._owner, self._name)
        if not self._owners_own:
            self._method(*given)

    def forget(self) -> None:
        """A backward begins: what its owner has called before it, to drain what was left, is no call of its own."""
        if not self._decided:
            self._owners_own = False

    def _watch(self) -> None:
        if self._name in getattr(self._owner, "__dict__", {}):  # theirs, and not a method: left as it is
            return
        with suppress(AttributeError, TypeError):
            object.__setattr__(self._owner, self._name, self._called)

    def _called(self, *args: Any, **kwargs: Any) -> Any:
        self._owners_own = True
        return self._method(*args, **kwargs)
