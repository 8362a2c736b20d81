"""Methods that a loop is meant to call, found by the names that people give them.

Special here: a name is only a guess at who calls the method. If the wrapper calls it by itself, from a hook or from a
callback at the end of the backward, the loop does not call it a second time. That is decided once, in the first step: a
wrapper that forgets the call in a later step gets no help.
"""

from __future__ import annotations

import gc
import inspect
import re
import sys
from collections.abc import Callable, Collection, Iterable, Iterator
from contextlib import AbstractContextManager, suppress
from types import CodeType, FrameType, FunctionType, MethodType
from typing import Any

from torch import nn
from torch.optim import optimizer as optimizers

_SOUNDS_LIKE_A_LOOPS = re.compile(
    "sync|reduce|average|grad|backward|finish|finali[sz]e|wait|flush|drain|scale|^(train|training|fit|run)_(step|batch)$"
)
_NO_PART_OF_A_STEP = re.compile("^(_|get_|set_|has_|is_|register_|no_sync|zero_grad|clip_|join)|hook|broadcast")
_MAKES_EQUAL = re.compile("^(broadcast|sync(hroni[sz]e)?)_.*(param|weight|model|module|state|buffer)")


WRITE_A_DRIVER = "write a ddp_core.Driver that says what the loop does (docs/driving.md)"
ONE_OF_MANY = ("grad", "gradient", "g", "param", "parameter", "p", "tensor", "bucket")


class NotDrivable(TypeError):
    """No style of loop fits the object, or it asks for what a loop does not know; this holds in every situation."""


def first_of(owner: Any, names: Iterable[str], num_arguments: int = 0) -> str | None:
    """Return the first of ``names`` that ``owner`` has as a method for ``num_arguments`` arguments, or None."""
    return next((name for name in names if takes(getattr(owner, name, None), num_arguments)), None)


def require(owner: Any, found: str | None, usual: str) -> str:
    """Return ``found``, the name of a method of ``owner``'s. Raises NotDrivable if it has none for this style."""
    if found is None:
        raise NotDrivable(
            f"{type(owner).__name__} has no {usual}(), and no other method without arguments of such a name: choose "
            "another --driver, or write a ddp_core.Driver that says what the loop calls (docs/driving.md)"
        )
    return found


def takes(method: Any, num_arguments: int, **named: Any) -> bool:
    """Return whether ``method`` can be called with so many positional arguments, and with these by name."""
    if not callable(method):
        return False
    try:
        inspect.signature(method).bind(*[None] * num_arguments, **named)
    except (TypeError, ValueError):
        return False
    return True


def backward_through(wrapped: Any, loss: Any) -> None:
    """Call ``wrapped.backward(loss)`` if there is one for a loop to call, else ``loss.backward()``."""
    if takes(getattr(wrapped, "backward", None), 1):
        wrapped.backward(loss)
    else:
        loss.backward()


def that_a_loop_may_call(owner: Any) -> list[str]:
    """Return the public methods of ``owner``'s class, not torch's or ours, that sound like part of a training step."""
    named = [n for n in _of_its_own(owner) if _SOUNDS_LIKE_A_LOOPS.search(n) and not _NO_PART_OF_A_STEP.search(n)]
    return [n for n in named if not is_about_one(getattr(owner, n))]


def that_make_equal(owner: Any) -> list[str]:
    """Return such methods that sound as if they made replicas equal at the start: ``broadcast_parameters()``."""
    return [n for n in _of_its_own(owner) if _MAKES_EQUAL.search(n) and not is_about_one(getattr(owner, n))]


def _of_its_own(owner: Any) -> list[str]:
    bases = (kind for kind in type(owner).__mro__ if kind.__module__.split(".")[0] in ("torch", "ddp_core"))
    known = {name for kind in bases for name in vars(kind)} | set(dir(nn.Module))
    return [n for n in dir(type(owner)) if n not in known and callable(getattr(type(owner), n, None))]


def what_it_asks_for(method: Callable[..., Any], model: nn.Module, optimizer: Any, name: str | None = None) -> Any:
    """Return the value for the argument ``name`` of ``method`` (default: its first), which the name decides:
    parameters, named or not, or in groups, the optimizer, or the model (as a list for ``models``).
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
    """Return whether ``method`` takes one argument, whose name says model, parameters or optimizer."""
    if not takes(method, 1) or takes(method, 0):
        return False
    name = next(iter(inspect.signature(method).parameters))
    return "param" in name or "optim" in name or name in ("opt", "model", "module", "models", "modules", "net")


def is_about_one(method: Callable[..., Any]) -> bool:
    """Return whether ``method`` is for one gradient, parameter or bucket, in a hook, and not for all, in a loop."""
    try:
        return next(iter(inspect.signature(method).parameters), None) in ONE_OF_MANY
    except (TypeError, ValueError):  # written in C
        return False


def leads_to(owner: Any, start: str, name: str) -> bool:
    """Return whether ``name`` occurs in the code of ``owner``'s method ``start``, or in code that this leads to:
    methods of its own, and functions beside its class. An attribute counts by the name of what it is bound to.
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


def mentions(owner: Any, names: Collection[str]) -> bool:
    """Return whether one of ``names`` occurs in the code of any method of ``owner``'s classes, except torch's."""
    kinds = (kind for kind in type(owner).__mro__ if kind.__module__.split(".")[0] != "torch")
    own = (value for kind in kinds for value in vars(kind).values() if isinstance(value, FunctionType))
    return any(name in names for function in own for name in _names_in(function.__code__))


def _methods(owner: Any, name: str) -> Iterator[FunctionType]:
    """Yield the method ``name`` of each of ``owner``'s classes, except torch's."""
    for kind in type(owner).__mro__:
        found = inspect.unwrap(vars(kind)[name]) if callable(vars(kind).get(name)) else None
        if isinstance(found, FunctionType) and kind.__module__.split(".")[0] != "torch":
            yield found


def _names_in(code: CodeType) -> Iterator[str]:
    """Yield the names in ``code``, those of arguments that it passes, and those in the functions inside it."""
    yield from code.co_names
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _names_in(constant)
        elif isinstance(constant, tuple):  # what calls pass by name
            yield from (name for name in constant if isinstance(name, str))


class CalledByLoop:
    """A method of ``owner`` to call once a step, unless its owner has called it by itself in the first step.

    Calls are noted by an attribute of ``owner`` in the method's place. Calls that do not look there (``owner`` has
    ``__slots__``, or a callback holds the bound method already) are noted by a profile function, in the first backward.
    """

    def __init__(self, owner: Any, name: str) -> None:
        self._owner, self.name = owner, name
        self._method: Callable[..., Any] = getattr(owner, name)
        self._decided = self._owners_own = False
        self._unseen = not self._watch() or is_bound_elsewhere(self._method)

    def __call__(self, *given: Any) -> None:
        """Call it as the loop, if its owner does not."""
        if not self._decided:
            self._decided = True
            if sys.getprofile() == self._profile:
                sys.setprofile(None)
            with suppress(AttributeError, KeyError):
                delattr(self._owner, self.name)
        if not self._owners_own:
            _require_done(self._method(*given), f"{type(self._owner).__name__}.{self.name}()")

    def heed(self, optimizer: Any) -> None:
        """Leave it to its owner if a hook before the step of ``optimizer``, or of all of them, calls it."""
        hooks = (getattr(optimizer, "_optimizer_step_pre_hooks", {}), optimizers._global_optimizer_pre_hooks)
        if not self._decided and any(_calls(hook, self.name) for of in hooks for hook in of.values()):
            self._decided = self._owners_own = True

    def forget(self) -> None:
        """Ignore what its owner has called so far, to drain old work; called when a backward begins."""
        if not self._decided:
            self._owners_own = False
            if self._unseen and sys.getprofile() is None:
                sys.setprofile(self._profile)

    def _watch(self) -> bool:
        """Put a method that notes calls in the place of the owner's; return whether that was possible."""
        if self.name in getattr(self._owner, "__dict__", {}):  # theirs, and not a method: left as it is
            return True
        try:
            object.__setattr__(self._owner, self.name, self._called)
        except (AttributeError, TypeError):
            return False
        return True

    def _called(self, *args: Any, **kwargs: Any) -> Any:
        self._owners_own = True
        return self._method(*args, **kwargs)

    def _profile(self, frame: FrameType, event: str, arg: object) -> None:
        if event == "call" and frame.f_code is getattr(self._method, "__code__", None):
            self._owners_own |= any(frame.f_locals.get(name) is self._owner for name in frame.f_code.co_varnames[:1])


def _calls(hook: Any, name: str) -> bool:
    """Return whether ``hook`` is a method of that name, or has it in its code."""
    code = getattr(hook, "__code__", None)
    return getattr(hook, "__name__", None) == name or (code is not None and name in _names_in(code))


def is_bound_elsewhere(method: Any) -> bool:
    """Return whether somebody else holds ``method``, bound to its owner, already: a callback, for example."""
    referrers = gc.get_referrers(method.__self__) if isinstance(method, MethodType) else []
    return any(isinstance(one, MethodType) and one == method and one is not method for one in referrers)


def _require_done(result: Any, called: str) -> None:
    """Raise NotDrivable if calling a method has done nothing yet: it has to be awaited, or entered by ``with``."""
    if inspect.iscoroutine(result):
        result.close()
        raise NotDrivable(f"{called} returns a coroutine, which a loop would await: {WRITE_A_DRIVER}")
    if isinstance(result, AbstractContextManager):
        raise NotDrivable(f"{called} returns a context manager, which a loop would enter: {WRITE_A_DRIVER}")
