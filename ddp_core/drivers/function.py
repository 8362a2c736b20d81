"""Function style: no wrapper at all, but a function ``average_gradients(model)`` that the loop calls before the step.

The style of torch's tutorial on distributed applications: replicas start equal because every rank has the same seed,
and no code could broadcast weights. The function is the strategy (``lockstep verify file.py:average_gradients``), and
is recognised by its name. If it also asks for a world size, a rank or a group, it gets that.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist
from torch import nn

from ddp_core.arguments import filled, known_names, missing
from ddp_core.driver import Driver
from ddp_core.drivers import explicit
from ddp_core.methods import takes, what_it_asks_for

VERBS = {*explicit.VERBS, "mean"}
NOUNS = {*explicit.NOUNS, "gradient"}
BESIDE = {  # other words that such a name may contain; any further one, like 'hook' or 'wrap', may mean anything
    "across", "all", "and", "bucketed", "buckets", "coalesced", "dist", "distributed", "flat", "gather", "in", "model",
    "mpi", "optim", "optimizer", "over", "ranks", "scatter", "sum", "workers",
}  # fmt: skip
SIZE = "size"  # the world size in torch's tutorial; as an option of a wrapper it may be a bucket's size


class FunctionDriver(Driver):
    style = "function"
    is_no_wrapper = True
    wraps_forward = False
    could_broadcast = False

    def __init__(self, wrapped: Callable[..., Any], model: nn.Module, **options: Any) -> None:
        super().__init__(model, model)
        asked = {SIZE: dist.get_world_size()} if SIZE in missing(wrapped, options, 0) else {}
        self._name = _not_first(wrapped, options)
        given = {self._name: model} if self._name else {}
        options = filled(wrapped, asked | options | given, model, None, num_given=0 if self._name else 1)
        self._function, self._options = wrapped, options

    @classmethod
    def fits(cls, wrapped: Any, **options: Any) -> bool:
        """Return whether it is a function of such a name, for one argument besides ``options`` and what is known by
        name. What ``wrap(model)`` returned never is.
        """
        if not inspect.isfunction(wrapped) or not is_such_a_name(wrapped.__name__):
            return False
        if (name := _not_first(wrapped, options)) is not None:
            options = {name: None, **options}
        known = {SIZE, *known_names(wrapped)}.intersection(missing(wrapped, options, 0 if name else 1))
        return takes(wrapped, 0 if name else 1, **dict.fromkeys(known), **options)

    def start_step(self, optimizer: torch.optim.Optimizer) -> None:
        self._stepped = optimizer

    def before_step(self) -> None:
        asked = what_it_asks_for(self._function, self.model, self._stepped, self._name)
        if self._name is None:
            self._function(asked, **self._options)
        else:
            self._function(**{**self._options, self._name: asked})


def _not_first(function: Callable[..., Any], options: dict[str, Any]) -> str | None:
    """Return the one argument left for the model, parameters or the optimizer, if an argument that a loop knows by
    name, like a world size, comes first. None: it is the first.
    """
    asked = missing(function, options, 0)
    left = [name for name in asked if name != SIZE and name not in known_names(function)]
    return left[0] if len(left) == 1 and asked[0] != left[0] else None


def is_such_a_name(name: str) -> bool:
    """Return whether ``name`` is one of *explicit*'s, or has such a verb, and gradients, and no word that says more."""
    words = {word.lower() for word in re.findall("[A-Z]?[a-z]+", re.sub("_?v[0-9]+$", "", name))}
    guessed = bool(words & VERBS and words & NOUNS) and words <= VERBS | NOUNS | BESIDE
    return guessed or name in (explicit.NAME, *explicit.OTHER_NAMES)


DRIVER = FunctionDriver
