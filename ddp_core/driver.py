"""How a wrapped model is driven through a training step: the points at which styles of wrapper differ.

Special here: a driver is found by *looking at* what ``wrap(model)`` returned (``recognise``), the most specific
style that fits, because nobody who has a wrapper to check should have to write an adapter for it first.
A strategy that fits no style brings its own subclass of ``Driver``.
"""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import Any, ClassVar

import torch
from torch import nn

from ddp_core import drivers


class Driver:
    """Drives what ``wrap(model)`` returned. The defaults are those of torch's DDP: ``backward()`` synchronises.

    A step is: ``zero_grad``; for each micro-batch ``forward`` and ``backward`` (inside ``no_sync()`` for all but
    the last); ``before_step``; ``step``.
    """

    style: ClassVar[str] = "native"
    specificity: ClassVar[int] = 0  # of the styles that fit, the highest wins

    def __init__(self, wrapped: Any, model: nn.Module) -> None:
        self.wrapped, self.model = wrapped, model

    @classmethod
    def fits(cls, wrapped: Any) -> bool:
        """Does ``wrapped`` look like something of this style?"""
        return callable(wrapped)

    def forward(self, *inputs: torch.Tensor) -> Any:
        return self.wrapped(*inputs)

    def no_sync(self) -> AbstractContextManager[Any]:
        """The wrapper's own ``no_sync()`` where it has one."""
        context = getattr(self.wrapped, "no_sync", None)
        return context() if callable(context) else nullcontext()

    def backward(self, loss: torch.Tensor) -> None:
        loss.backward()

    def before_step(self) -> None:
        """After the last backward, before the optimizer steps. Gradients must be final when this returns."""

    def make_optimizer(
        self, cls: type[torch.optim.Optimizer], parameters: list[nn.Parameter], **options: Any
    ) -> torch.optim.Optimizer:
        """The optimizer that steps ``parameters``: of class ``cls``, unless the strategy brings its own kind."""
        return cls(parameters, **options)

    def zero_grad(self, optimizer: torch.optim.Optimizer) -> None:
        optimizer.zero_grad(set_to_none=True)

    def step(self, optimizer: torch.optim.Optimizer) -> None:
        optimizer.step()

    def named_parameters(self) -> list[tuple[str, nn.Parameter]]:
        """The trained parameters under the bare model's names.

        Most wrappers keep the model's own tensors. Where one made copies (``deepcopy``), they are found in the
        wrapped object by the end of their names.
        """
        own = list(self.model.named_parameters())
        inside = _parameters_inside(self.wrapped)
        if not inside or {id(p) for _, p in own} & {id(p) for _, p in inside}:
            return own
        found = []
        for name, parameter in own:
            theirs = [p for other, p in inside if other == name or other.endswith("." + name)]
            found.append((name, theirs[0] if len(theirs) == 1 else parameter))
        return found


def _parameters_inside(wrapped: Any) -> list[tuple[str, nn.Parameter]]:
    for candidate in (wrapped, getattr(wrapped, "module", None), getattr(wrapped, "model", None)):
        if isinstance(candidate, nn.Module):
            return list(candidate.named_parameters())
    return []


def styles() -> dict[str, type[Driver]]:
    """Every driver style in ``drivers/``, by name."""
    found: dict[str, type[Driver]] = {}
    for entry in pkgutil.iter_modules(drivers.__path__):
        module = importlib.import_module(f"{drivers.__name__}.{entry.name}")
        found[entry.name] = module.DRIVER
    return found


def recognise(wrapped: Any) -> type[Driver]:
    """The most specific style that fits ``wrapped``.

    Raises TypeError if none does.
    """
    fitting = [driver for driver in styles().values() if driver.fits(wrapped)]
    if not fitting:
        raise TypeError(
            f"wrap(model) returned a {type(wrapped).__name__} object, which cannot be called on inputs: "
            f"it must be a model-like object (one of the styles {', '.join(styles())})"
        )
    return max(fitting, key=lambda driver: driver.specificity)


DriverFactory = Callable[[Any, nn.Module], Driver]
