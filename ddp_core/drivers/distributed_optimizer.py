"""Distributed optimizer: the strategy takes the loop's optimizer and returns the one that steps, like Horovod's.

The strategy is a class or function ``(optimizer, ...)``, recognised by the name of its first argument. The model runs
bare, replicas start equal because every rank has the same seed, and gradients may be reduced as late as in ``step()``.
Arguments without a default that are named ``named_parameters``, ``model`` or ``module`` are filled in. If the optimizer
has a ``sync_gradients()`` that its ``step()`` does not call, the loop does.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

import torch
from torch import nn

from ddp_core.arguments import filled, names_an_optimizer
from ddp_core.drivers.finish import AsksTheOptimizer
from ddp_core.methods import NotDrivable

CLASSES = ("optimizer_class", "optimizer_cls", "optim_class", "optim_cls", "optimizer_type")
PARAMETERS = ("params", "parameters")


class DistributedOptimizerDriver(AsksTheOptimizer):
    style = "distributed_optimizer"
    is_no_wrapper = True
    wraps_forward = False
    could_broadcast = False

    def __init__(self, build: Callable[..., Any], model: nn.Module, **options: Any) -> None:
        super().__init__(model, model)
        self._build, self._options = build, options

    @classmethod
    def fits(cls, wrapped: Any) -> bool:
        """Return whether it is a class or function with an optimizer first. What ``wrap(model)`` returned never is."""
        return names_an_optimizer(argument(wrapped, 0))

    @property
    def can_clip(self) -> bool:
        """Only by a method of the optimizer's own: a loop would clip before gradients are reduced."""
        return self.own_clip is not None

    def make_optimizer(
        self, cls: type[torch.optim.Optimizer], parameters: list[nn.Parameter], **options: Any
    ) -> torch.optim.Optimizer:
        if takes_a_class(self._build):
            by_name = filled(self._build, options | self._options, self.model, None, num_given=2)
            built: torch.optim.Optimizer = self._build(parameters, cls, **by_name)
        else:
            by_name = filled(self._build, self._options, self.model, None)
            built = self._build(cls(parameters, **options), **by_name)
        if built is None:
            raise NotDrivable(
                f"{getattr(self._build, '__name__', 'the strategy')}() took an optimizer and returned None, where one "
                "to step was expected: return it; or if a loop calls it before each step, say --driver function"
            )
        self.optimizer_of_wrap = built
        self.ask(built)
        return built


def argument(target: Any, place: int) -> str | None:
    """Return the name of an argument of a class or function; None if there is none, or no signature."""
    if not inspect.isfunction(target) and not inspect.isclass(target):
        return None
    try:
        return dict(enumerate(inspect.signature(target).parameters)).get(place)
    except (TypeError, ValueError):
        return None


def takes_a_class(target: Any) -> bool:
    """Return whether the second argument is the class of the optimizer to build. That is recognised by its name, by
    parameters before it (a ``wrap`` is never given these), or by its default, as in fairscale's.
    """
    name = argument(target, 1)
    if name is None or name in CLASSES:
        return name is not None
    if argument(target, 0) in PARAMETERS and "optim" in name:
        return True
    default = inspect.signature(target).parameters[name].default
    return inspect.isclass(default) and issubclass(default, torch.optim.Optimizer)


DRIVER = DistributedOptimizerDriver
