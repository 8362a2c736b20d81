"""Step style: the wrapper has its own optimizer and a ``step()``, which the loop calls in the place of the optimizer's.

An engine whose backward is the loss's own. The optimizer inside is what tells it from wrappers whose ``step()`` counts,
or averages weights now and then: those are not called, for nobody knows when they want to be. What stands beside the
model, and has ``zero_grad()`` as well, is an optimizer, of whatever class. A ``sync_gradients()``, or a method of a
like name, is called before the step, unless that calls it.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

from ddp_core.drivers import explicit, finish
from ddp_core.drivers.engine import EngineDriver
from ddp_core.methods import takes

NAMES = ("optimizer", "optim", "opt", "_optimizer")


class StepDriver(EngineDriver):
    style = "step"
    specificity = 21  # more than *explicit* and *finish*: what has both has both called

    @classmethod
    def fits(cls, wrapped: Any) -> bool:
        if not takes(getattr(wrapped, "step", None), 0):
            return False
        if _synchronizes(wrapped):
            return True
        one_of_others = explicit.ExplicitDriver.fits(wrapped) or finish.FinishDriver.fits(wrapped)
        return _held(wrapped) is not None and (not one_of_others or _is_the_optimizers(wrapped))

    def make_optimizer(
        self, cls: type[torch.optim.Optimizer], parameters: list[nn.Parameter], **options: Any
    ) -> torch.optim.Optimizer:
        """The one that the wrapper holds, or is."""
        held = _held(self.wrapped, self.model)
        return super().make_optimizer(cls, parameters, **options) if held is None else held

    def backward(self, loss: torch.Tensor) -> None:
        if self._synchronize is not None:
            self._synchronize.forget()
        loss.backward()

    @property
    def can_clip(self) -> bool:
        """Where the loop has synchronised what an optimizer of torch's steps, and not a shard of it."""
        return super().can_clip or (self._synchronize is not None and _held(self.wrapped) is not None)


def _is_the_optimizers(wrapped: Any) -> bool:
    """Is its ``step()`` its optimizer's, by the name that it is held by? An ``outer`` one has steps of its own."""
    return any(isinstance(getattr(wrapped, name, None), torch.optim.Optimizer) for name in NAMES)


def _synchronizes(wrapped: Any) -> bool:
    return explicit.steps_by_itself(wrapped) and explicit.method_of(wrapped) is not None


def _held(wrapped: Any, model: nn.Module | None = None) -> torch.optim.Optimizer | None:
    """The first optimizer among what ``wrapped`` holds itself that has parameters of ``model``'s, or else the first:
    one rank may hold an outer one as well, over a copy. Or ``wrapped`` itself.
    """
    if isinstance(wrapped, torch.optim.Optimizer):
        return wrapped
    things = getattr(wrapped, "__dict__", {}).values()
    held = [thing for thing in things if isinstance(thing, torch.optim.Optimizer)]
    models = {id(parameter) for parameter in model.parameters()} if model is not None else set[int]()
    over = (one for one in held if any(id(p) in models for group in one.param_groups for p in group["params"]))
    return next(over, held[0] if held else None)


DRIVER = StepDriver
