"""Detects the end of backward through autograd itself, so that a training loop needs no further call.

Special here: **re-entrant checkpointing** runs a whole backward inside a backward. A callback that is queued in the
inner one runs when the inner one ends, which is too early. So the outermost backward must be recognised. A hook on the
wrapped model's outputs fires first in it, before any checkpointed block is entered. Where the outputs cannot carry a
hook, the first gradient's backward counts as the outermost, and later gradients are synchronised a second time. That
costs time but, where ranks nest alike, changes no result (a mean of equal means).
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import nn
from torch.autograd import Variable

NONE = -1


def current_backward() -> int:
    """Autograd's number for the backward that runs this code; -1 outside any. A nested backward has its own number."""
    return torch._C._current_graph_task_id()


class BackwardWatch:
    """Calls ``over`` when the outermost noted backward ends."""

    def __init__(self, over: Callable[[], None], interrupted: Callable[[], None]) -> None:
        self._over = weakref.WeakMethod(over)  # weak: the owner of this method holds this watch
        self._interrupted = weakref.WeakMethod(interrupted)
        self.outermost = NONE

    @property
    def under_way(self) -> bool:
        return self.outermost != NONE

    def enter(self) -> bool:
        """Note that this code runs inside a backward, and return whether that backward is the outermost one."""
        here = current_backward()
        if self.outermost == NONE:
            self.outermost = here
            Variable._execution_engine.queue_callback(self._ended)
        return here == self.outermost

    def enter_from(self, output: Any, owner: Any) -> None:
        """Hook ``output`` (tensors in nested tuples, lists, dicts) so that its backward is noted when it begins.

        The graph keeps ``owner`` alive: the last backward of a wrapper may come after the last reference to it is gone.
        """

        top_level = current_backward() == NONE

        def note(gradient: torch.Tensor, owner: Any = owner) -> None:
            if top_level and self.outermost not in (NONE, current_backward()):
                interrupted = (
                    self._interrupted()
                )  # the backward of a top-level forward is never nested, so the previous backward raised
                if interrupted is not None:
                    interrupted()
            self.enter()

        for tensor in tensors_in(output):
            if tensor.requires_grad and not tensor.is_leaf:  # a leaf outlives the graph: hooks on it would pile up
                tensor.register_hook(note)

    def forget(self) -> None:
        """Forget the backward under way. It raised, so autograd will not call back."""
        self.outermost = NONE

    def _ended(self) -> None:
        self.outermost = NONE
        over = self._over()
        if over is not None:
            over()


def tensors_in(value: Any) -> Iterator[torch.Tensor]:
    """Yield the tensors in ``value``: in tuples, lists, dicts (transformers' ModelOutput is one) and objects."""
    if isinstance(value, torch.Tensor):
        yield value
    elif isinstance(value, tuple | list):
        for item in value:
            yield from tensors_in(item)
    elif isinstance(value, dict):
        yield from tensors_in(list(value.values()))
    elif hasattr(value, "__dict__") and not isinstance(value, type | nn.Module):
        yield from (item for part in vars(value).values() if part is not value for item in _shallow(part))


def _shallow(part: Any) -> Iterator[torch.Tensor]:
    """Yield the tensors of an object's attribute, but do not descend into further objects: they may form cycles."""
    if isinstance(part, torch.Tensor | tuple | list | dict):
        yield from tensors_in(part)
