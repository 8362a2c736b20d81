"""Which style drives what ``wrap(model)`` returned: found by looking at it, or at what it left on the model.

Special here: three cases are handled first. A wrapped model may come with the optimizer that steps it, in a tuple or
by name; an object may stand beside a model that runs bare; and a function may return nothing, but have put hooks on the
model.
"""

from __future__ import annotations

import dataclasses
import importlib
import inspect
import pkgutil
from collections.abc import Callable, Iterator, Mapping
from types import SimpleNamespace
from typing import Any

import torch
from torch import nn

from ddp_core import drivers
from ddp_core.driver import WRAP_OPTIMIZER, Driver, runs
from ddp_core.drivers.course import AFTER, CourseDriver
from ddp_core.drivers.optimizer_wrapper import OptimizerWrapperDriver
from ddp_core.methods import NotDrivable, that_a_loop_may_call

_MODELS, _OPTIMIZERS = ("model", "module", "net", "network"), ("optimizer", "optim", "opt")


def styles() -> dict[str, type[Driver]]:
    """Return every driver style in ``drivers/``, by name."""
    found: dict[str, type[Driver]] = {}
    for entry in pkgutil.iter_modules(drivers.__path__):
        module = importlib.import_module(f"{drivers.__name__}.{entry.name}")
        found[entry.name] = module.DRIVER
    return found


def drive(
    wrapped: Any,
    model: nn.Module,
    *,
    style: str | None = None,
    companions: Mapping[str, Callable[..., Any]] | None = None,
    left_marks: bool = False,
) -> Driver:
    """Return the driver for ``wrapped``: itself if it is one, else of the named style, else of the one that fits best.

    ``companions``: functions beside ``wrap`` that the loop calls, by when. ``left_marks``: whether wrapping has changed
    ``marks(model)``.

    Raises NotDrivable if no style fits.
    """
    if isinstance(wrapped, Driver):
        return wrapped
    wrapped, optimizer = _taken_apart(_by_name(wrapped))
    kind = styles()[style] if style else _with_companions(companions or {}, wrapped, left_marks)
    driver = kind(model if wrapped is None else wrapped, model)
    driver.companions = companions or {}
    driver.stands_beside_model, driver.optimizer_of_wrap = not runs(wrapped), optimizer
    return driver


def _with_companions(companions: Mapping[str, Any], wrapped: Any, left_marks: bool) -> type[Driver]:
    """Return the style that fits ``wrapped`` and the functions beside ``wrap``."""
    if AFTER in companions:
        return CourseDriver
    kind = recognise(wrapped, left_marks=left_marks)
    builds = WRAP_OPTIMIZER in companions
    return OptimizerWrapperDriver if builds and kind.specificity < OptimizerWrapperDriver.specificity else kind


def recognise(wrapped: Any, *, left_marks: bool = False) -> type[Driver]:
    """Return the most specific style that fits ``wrapped``.

    Raises NotDrivable if none does, and nothing was left on the model either.
    """
    if isinstance(wrapped, tuple | list):
        raise NotDrivable(
            f"wrap(model) returned a {type(wrapped).__name__}: return the wrapped model alone, or with its optimizer, "
            "(wrapped, optimizer)"
        )
    thing = not isinstance(wrapped, torch.Tensor)  # a tensor has a backward(), too
    fitting = [driver for driver in styles().values() if thing and driver.fits(wrapped)]
    if not fitting and left_marks:
        return Driver
    if not fitting:
        raise NotDrivable(
            f"wrap(model) returned a {type(wrapped).__name__} object, which cannot be called on inputs, and no hooks "
            "were seen on the model: write a ddp_core.Driver that says what the loop does (docs/driving.md), or return "
            "the model, or what wraps it, or an object with methods that a loop knows "
            f"(styles: {', '.join(styles())})"
            + _of_its_own(wrapped)
            + ("; a function that is to be called on the model before each step: --driver function" * (wrapped is None))
        )
    return max(fitting, key=lambda driver: driver.specificity)


def _of_its_own(wrapped: Any) -> str:
    """Return, as text, the methods of ``wrapped`` that sound as if a loop had to call them."""
    found = that_a_loop_may_call(wrapped)
    return f"; what it has is {', '.join(_called(wrapped, name) for name in found)}" if found else ""


def _called(owner: Any, name: str) -> str:
    """Return ``name`` with the arguments it requires: even a known method may ask for what no loop has."""
    try:
        arguments = inspect.signature(getattr(owner, name)).parameters.values()
    except (TypeError, ValueError):
        return f"{name}()"
    asked = [one.name for one in arguments if one.default is one.empty and one.kind is one.POSITIONAL_OR_KEYWORD]
    return f"{name}({', '.join(asked)})"


def marks(model: nn.Module) -> list[Any]:
    """Return what a strategy may leave on ``model`` that changes its training: hooks, and methods of its own."""
    return [*_marks(model)]


def _marks(model: nn.Module) -> Iterator[Any]:
    for module in model.modules():
        held = vars(module)
        yield type(module), "forward" in held, [len(hooks) for name, hooks in held.items() if name.endswith("_hooks")]
    for parameter in model.parameters():
        yield type(parameter), len(parameter._backward_hooks or ()), len(parameter._post_accumulate_grad_hooks or ())


def _by_name(wrapped: Any) -> Any:
    """Return ``(model, optimizer)`` of a mapping, a dataclass or a namespace that has them by name and that no style
    fits; anything else as it is.
    """
    if isinstance(wrapped, Mapping):
        held = dict(wrapped)
    elif dataclasses.is_dataclass(wrapped) and not isinstance(wrapped, type):
        held = {field.name: getattr(wrapped, field.name) for field in dataclasses.fields(wrapped)}
    else:
        held = dict(vars(wrapped)) if isinstance(wrapped, SimpleNamespace) else {}
    model = next((held[name] for name in _MODELS if callable(held.get(name))), None)
    if model is None or any(driver.fits(wrapped) for driver in styles().values()):
        return wrapped
    return model, next((held[name] for name in _OPTIMIZERS if held.get(name) is not None), None)


def _taken_apart(wrapped: Any) -> tuple[Any, Any]:
    """Return model and optimizer of ``(wrapped, optimizer, None, ...)``; of anything else, ``wrapped`` and None."""
    if not isinstance(wrapped, tuple | list) or not wrapped or wrapped[0] is None:
        return wrapped, None
    first, *others = wrapped
    optimizer = others.pop(0) if others and callable(getattr(others[0], "step", None)) else None
    return (first, optimizer) if all(other is None for other in others) else (wrapped, None)
