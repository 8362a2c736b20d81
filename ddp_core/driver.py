"""How a wrapped model is driven through a training step: the points at which styles of wrapper differ.

Special here: to check a wrapper, nobody should have to write an adapter for it first. So these points are named after
what wrappers have, and the style is recognised by what ``wrap(model)`` returned (``recognition``). A strategy that fits
no style brings its own subclass of ``Driver``.
"""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from types import MappingProxyType
from typing import Any, ClassVar, cast

import torch
from torch import nn

from ddp_core.methods import backward_through, takes

# Flags that a loop sets by hand, in wrappers without a no_sync() context: true for the backward that synchronises.
SYNC_FLAGS = ("require_backward_grad_sync", "require_gradient_sync")
SYNC_SWITCH = "set_requires_gradient_sync"  # of torch's fully_shard and replicate: it stays as it was set
ZERO_BUFFERS = ("zero_grad_buffer", "zero_grad_buffers")  # Megatron's name, and a variant of it
WRAP_OPTIMIZER = "wrap_optimizer"  # a method of what was wrapped, or a function beside ``wrap``
ON_START = "on_train_batch_start"  # a method of the wrapper, as in Stanford's CS336
CLIPS = ("clip_grad_norm_", "clip_grad_norm", "clip_grad_by_norm")  # torch's name; fairscale's OSS; ColossalAI


class Driver:
    """Drives what ``wrap(model)`` returned. The defaults are those of torch's DDP: ``backward()`` synchronises.

    A step is: ``start_step``; ``zero_grad``; for each micro-batch ``forward`` and ``backward`` (inside ``no_sync()``
    for all but the last); ``before_step``; perhaps ``clip``; ``step``; ``after_step``.

    A subclass is a strategy by itself (``lockstep verify mine.py:MyDriver``): it is made as ``MyDriver(model)``, and
    what its ``prepare(model)`` returns is called on the inputs.
    """

    style: ClassVar[str] = "native"
    specificity: ClassVar[int] = 0  # of the styles that fit, the highest wins
    is_no_wrapper: ClassVar[bool] = (
        False  # True: the strategy is not what wraps a model, and the driver is made from it
    )
    wraps_forward: ClassVar[bool] = True  # False: the model runs bare; no code could synchronise buffers before it
    could_broadcast: ClassVar[bool] = True  # False: none of the strategy's code runs before the first forward

    # Set by the caller of ``wrap``; a subclass may do without our ``__init__``, and has names of its own.
    stands_beside_model: bool = False  # ``wrapped`` is not called on inputs: the bare model is
    companions: Mapping[str, Callable[..., Any]] = MappingProxyType({})  # functions beside ``wrap``, by name
    optimizer_of_wrap: Any = None  # the one that ``wrap`` returned, or was given
    optimizer_went_in: bool = False  # True: the optimizer that the loop asks for has reached the strategy
    optimizer_made: Any = None  # what ``make_optimizer`` returned; set by its caller

    def __init__(self, wrapped: Any, model: nn.Module | None = None) -> None:
        if model is None:  # made by itself: it does the wrapping, too
            model, wrapped = wrapped, self.prepare(wrapped)
        self.wrapped, self.model = wrapped, model

    @classmethod
    def fits(cls, wrapped: Any) -> bool:
        """Return whether ``wrapped`` looks like something of this style."""
        return runs(wrapped)

    def prepare(self, model: nn.Module) -> Any:
        """Wrap ``model``; used where the driver is the strategy."""
        return model

    def start_step(self, optimizer: torch.optim.Optimizer) -> None:
        """Called before anything else in a step. Some wrappers prepare for it, by ``on_train_batch_start()``."""
        start = getattr(self.wrapped, ON_START, None)
        if callable(start) and takes(start, 0) and self.wrapped is not self.model:
            start()

    @property
    def callee(self) -> Any:
        """What is called on inputs, evaluated and saved: what ``wrap`` returned, or the model that it stands beside."""
        return self.model if self.stands_beside_model else self.wrapped

    def forward(self, *inputs: torch.Tensor, **named: torch.Tensor) -> Any:
        call = self.callee if callable(self.callee) else self.callee.forward
        return call(*inputs, **named)

    @property
    def has_no_sync(self) -> bool:
        """Whether there is a way to keep a backward from synchronising."""
        contexts = (getattr(self.wrapped, name, None) for name in ("no_sync", SYNC_SWITCH))
        return any(map(callable, contexts)) or self._sync_flag() is not None

    def no_sync(self) -> AbstractContextManager[Any]:
        """Return the wrapper's own ``no_sync()`` if it has one, or a context that sets a switch or flag instead."""
        context = getattr(self.wrapped, "no_sync", None)
        if callable(context):
            entered: AbstractContextManager[Any] = context()
            return entered
        if callable(switch := getattr(self.wrapped, SYNC_SWITCH, None)):
            return _switched_off(switch)
        flag = self._sync_flag()
        return nullcontext() if flag is None else self._flag_lowered(flag)

    def _sync_flag(self) -> str | None:
        return next((name for name in SYNC_FLAGS if isinstance(getattr(self.wrapped, name, None), bool)), None)

    @contextmanager
    def _flag_lowered(self, name: str) -> Iterator[None]:
        setattr(self.wrapped, name, False)
        try:
            yield
        finally:
            setattr(self.wrapped, name, True)

    def backward(self, loss: torch.Tensor) -> None:
        """Run the backward: by ``backward(loss)`` of the optimizer that ``wrap`` returned, or that the strategy made,
        if it has one, as ColossalAI's has; else by ``loss.backward()``.
        """
        backward_through(self.optimizer_made if self.optimizer_of_wrap is None else self.optimizer_of_wrap, loss)

    def before_step(self) -> None:
        """Called after the last backward, before the optimizer steps. Gradients must be final when this returns."""

    def make_optimizer(
        self, cls: type[torch.optim.Optimizer], parameters: list[nn.Parameter], **options: Any
    ) -> torch.optim.Optimizer:
        """Return the optimizer that steps ``parameters``: of class ``cls``, unless the strategy brings its own kind.

        ``parameters`` may also be groups, as ``torch.optim`` takes them. In every style, a strategy that has
        ``wrap_optimizer(cls, parameters, **options)`` builds it; ``wrap_optimizer(optimizer)`` is given one. It is a
        method of what was wrapped, or a function beside ``wrap``.
        """
        build = getattr(self.wrapped, WRAP_OPTIMIZER, None) or self.companions.get(WRAP_OPTIMIZER)
        if not callable(build):
            return cls(parameters, **options) if self.optimizer_of_wrap is None else self.optimizer_of_wrap
        if takes(build, 1) and not takes(build, 2):
            made = cls(parameters, **options)
            return build(made) or made
        optimizer: torch.optim.Optimizer = build(cls, parameters, **options)
        return optimizer

    def zero_grad(self, optimizer: torch.optim.Optimizer, *, set_to_none: bool = True) -> None:
        """Clear gradients by the optimizer, or by the model if a stranger's optimizer has no ``zero_grad()``. A
        wrapper's own gradient buffer is cleared as well: by ``zero_grad_buffer()``, as Megatron's has it, or by a
        ``zero_grad()`` with which its class overrides that of ``nn.Module``.
        """
        for name in ZERO_BUFFERS:
            clear = getattr(self.wrapped, name, None)
            if clear is not None and takes(clear, 0):
                clear()
        for zero in self.zero_grads(optimizer):
            if takes(zero, 0, set_to_none=set_to_none):
                zero(set_to_none=set_to_none)
            else:
                zero()

    def zero_grads(self, optimizer: torch.optim.Optimizer) -> list[Callable[..., Any]]:
        """Return what ``zero_grad()`` calls, each once. One without ``set_to_none`` always does one of the two."""
        overrides = isinstance(self.wrapped, nn.Module) and type(self.wrapped).zero_grad is not nn.Module.zero_grad
        wrappers = [self.wrapped.zero_grad] if overrides else []
        return list(dict.fromkeys([*wrappers, self.own_zero_grad(optimizer)]))

    def own_zero_grad(self, optimizer: torch.optim.Optimizer) -> Callable[..., Any]:
        """Return the ``zero_grad()`` of the optimizer, or of the model if the optimizer has none."""
        return getattr(optimizer, "zero_grad", None) or self.model.zero_grad

    @property
    def can_clip(self) -> bool:
        """Whether gradients are final when ``before_step`` has returned, so that a loop may clip them."""
        return True

    @property
    def own_clip(self) -> Callable[..., Any] | None:
        """The strategy's own ``clip_grad_norm_``, of its wrapper or of the optimizer that it made: no rank of a sharder
        knows the whole norm. None: it has none.
        """
        for owner in (self.wrapped, self.optimizer_of_wrap, self.optimizer_made):
            for name in CLIPS:
                own = getattr(owner, name, None)
                if takes(own, 1) or (takes(own, 2) and _wants_parameters(own)):
                    return cast("Callable[..., Any]", own)
        return None

    @property
    def clips_by_other_norms(self) -> bool:
        """Whether the strategy's own clipping takes a ``norm_type``, as torch's ``clip_grad_norm_`` does."""
        if type(self).clip is not Driver.clip:
            return takes(self.clip, 2, norm_type=math.inf)
        own = self.own_clip
        return own is not None and takes(own, 2 if _wants_parameters(own) else 1, norm_type=math.inf)

    def clip(self, parameters: list[nn.Parameter], max_norm: float, norm_type: float = 2.0) -> Any:
        """Clip by ``own_clip``, or as torch does. A returned number is the norm before clipping."""
        own = self.own_clip
        if own is None:
            return torch.nn.utils.clip_grad_norm_(parameters, max_norm, norm_type)
        other = {} if norm_type == 2.0 else {"norm_type": norm_type}
        return own(parameters, max_norm, **other) if _wants_parameters(own) else own(max_norm, **other)

    def step(self, optimizer: torch.optim.Optimizer) -> None:
        optimizer.step()

    def after_step(self) -> None:
        """Called after the optimizer's step. Some wrappers have state to clear then, by ``reset()``."""
        reset = getattr(self.wrapped, "reset", None)
        if callable(reset) and takes(reset, 0) and self.wrapped is not self.model:
            reset()

    def state_dict(self) -> dict[str, Any]:
        """Return what the strategy would save of the model.

        Raises AttributeError if it offers nothing.
        """
        saved: dict[str, Any] = self.callee.state_dict()
        return saved

    def load_state_dict(self, saved: dict[str, Any]) -> None:
        self.callee.load_state_dict(saved)

    @property
    def state_keeper(self) -> Any:
        """What has a state of its own beside the model's and the loop's optimizer's: an engine's masters, or the
        residual of a compression. It is saved with them, and loaded after them. None: there is none.
        """
        thing = self.wrapped if self.stands_beside_model else None
        is_saved_already = isinstance(thing, nn.Module | torch.optim.Optimizer) or thing is self.optimizer_made
        if is_saved_already or not takes(getattr(thing, "state_dict", None), 0):
            return None
        return thing if takes(getattr(thing, "load_state_dict", None), 1) else None

    def gradient(self, parameter: nn.Parameter) -> torch.Tensor | None:
        """Return what the optimizer will take as the gradient of ``parameter``; some keep it in ``main_grad``."""
        if parameter.grad is not None:
            return parameter.grad
        main: torch.Tensor | None = getattr(parameter, "main_grad", None)
        return main

    def named_parameters(self) -> list[tuple[str, nn.Parameter]]:
        """Return the trained parameters under the bare model's names.

        Most wrappers keep the model's own tensors. Where one made copies (``deepcopy``), they are found in the wrapped
        object by the end of their names.
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


def _wants_parameters(clip: Any) -> bool:
    return "parameters" in inspect.signature(clip).parameters


def runs(wrapped: Any) -> bool:
    """Return whether it can be called on inputs, as a model is, or has a plain ``forward()``."""
    return callable(wrapped) or callable(getattr(wrapped, "forward", None))


@contextmanager
def _switched_off(switch: Callable[[bool], Any]) -> Iterator[None]:
    switch(False)
    try:
        yield
    finally:
        switch(True)


def _parameters_inside(wrapped: Any) -> list[tuple[str, nn.Parameter]]:
    for candidate in (wrapped, getattr(wrapped, "module", None), getattr(wrapped, "model", None)):
        names = getattr(candidate, "named_parameters", None)
        if callable(names) and candidate is not None:
            return list(names())
    return []
