"""Step style: the wrapper has its own optimizer and a ``step()``, which the loop calls in place of the optimizer's.

It is an engine whose backward is the loss's own. The optimizer inside distinguishes it from wrappers whose ``step()``
counts, or averages weights now and then. Those are not called, because it is unknown when they should be. An object
beside the model that also has ``zero_grad()`` is an optimizer, of whatever class. A ``sync_gradients()``, or a method
of a like name, is called before the step, unless ``step()`` calls it.
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
    specificity = 21  # more than *explicit* and *finish*: of a wrapper with both methods, both are called

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
        """Return the optimizer that the wrapper holds, or is."""
        held = _held(self.wrapped, self.model)
        return super().make_optimizer(cls, parameters, **options) if held is None else held

    def backward(self, loss: torch.Tensor) -> None:
        if self._synchronize is not None:
            self._synchronize.forget()
        loss.backward()

    @property
    def can_clip(self) -> bool:
        """If the loop has synchronised what one of torch's optimizers steps by, and that is not a shard."""
        return super().can_clip or (self._synchronize is not None and _held(self.wrapped) is not None)


def _is_the_optimizers(wrapped: Any) -> bool:
    """Return whether ``step()`` is its optimizer's, by the optimizer's name. An ``outer`` one has steps of its own."""
    return any(isinstance(getattr(wrapped, name, None), torch.optim.Optimizer) for name in NAMES)


def _synchronizes(wrapped: Any) -> bool:
    return explicit.steps_by_itself(wrapped) and explicit.method_of(wrapped) is not None


def _held(wrapped: Any, model: nn.Module | None = None) -> torch.optim.Optimizer | None:
    """Return the first optimizer that ``wrapped`` holds with parameters of ``model``'s, or else the first: one rank may
    also hold an outer one, over a copy. An optimizer is returned itself.
    """
    if isinstance(wrapped, torch.optim.Optimizer):
        return wrapped
    things = getattr(wrapped, "__dict__", {}).values()
    held = [thing for thing in things if isinstance(thing, torch.optim.Optimizer)]
    models = {id(parameter) for parameter in model.parameters()} if model is not None else set[int]()
    over = (one for one in held if any(id(p) in models for group in one.param_groups for p in group["params"]))
    return next(over, held[0] if held else None)


DRIVER = StepDriver
