"""When is backward over? Found through autograd itself, so that a training loop needs no further call.

Special here is **re-entrant checkpointing**: it runs a whole backward inside a backward, and a callback that is queued
in there runs when the inner one ends, far too early. So the outermost backward has to be recognised. A hook on the
wrapped model's outputs fires first in it, before any checkpointed block is entered; where the outputs cannot carry a
hook, the first gradient's backward counts as the outermost, and what comes later is a second synchronisation, which
costs time and, where ranks nest alike, changes no result (a mean of equal means).
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
    """Autograd's number for the backward that this code runs in; -1 outside of any. Nested ones have their own."""
    return torch._C._current_graph_task_id()


class BackwardWatch:
    """Calls ``over`` when the outermost backward that was noted has come to its end."""

    def __init__(self, over: Callable[[], None], interrupted: Callable[[], None]) -> None:
        self._over = weakref.WeakMethod(over)  # a method of the owner, who holds this watch
        self._interrupted = weakref.WeakMethod(interrupted)
        self.outermost = NONE

    @property
    def under_way(self) -> bool:
        return self.outermost != NONE

    def enter(self) -> bool:
        """Note that this code runs inside a backward. Is it the outermost, not one nested in it?"""
        here = current_backward()
        if self.outermost == NONE:
            self.outermost = here
            Variable._execution_engine.queue_callback(self._ended)
        return here == self.outermost

    def enter_from(self, output: Any, owner: Any) -> None:
        """Let the backward of ``output`` (tensors in any nest of tuples, lists, dicts) note itself when it begins.

        The graph keeps ``owner`` alive: a wrapper that nobody holds any more still has its last backward to come.
        """

        top_level = current_backward() == NONE

        def note(gradient: torch.Tensor, owner: Any = owner) -> None:
            if top_level and self.outermost not in (NONE, current_backward()):
                interrupted = (
                    self._interrupted()
                )  # a backward of a top-level forward is never nested: the last one died
                if interrupted is not None:
                    interrupted()
            self.enter()

        for tensor in tensors_in(output):
            if tensor.requires_grad and not tensor.is_leaf:  # a leaf outlives the graph, and would gather hooks
                tensor.register_hook(note)

    def forget(self) -> None:
        """The backward under way raised: autograd will not call back."""
        self.outermost = NONE

    def _ended(self) -> None:
        self.outermost = NONE
        over = self._over()
        if over is not None:
            over()


def tensors_in(value: Any) -> Iterator[torch.Tensor]:
    """The tensors in ``value``, through tuples, lists, dicts (transformers' ModelOutput is one) and objects."""
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
    """Of an object's attributes only plain ones: objects may lead in circles."""
    if isinstance(part, torch.Tensor | tuple | list | dict):
        yield from tensors_in(part)
