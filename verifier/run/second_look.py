"""A second look at gradients, when an optimizer begins inside the one that the loop holds.

Special here: some strategies synchronise in ``step()`` and then step an inner optimizer, whose start is the latest
moment at which gradients must be right. With several inner optimizers (Muon for matrices, AdamW for the rest), one that
has ended may have changed the gradients of its own parameters by its rule; those are not looked at again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch.optim.optimizer import register_optimizer_step_post_hook, register_optimizer_step_pre_hook

from verifier.journal import Journal
from verifier.lines import MASTERS
from verifier.uncompiled import uncompiled


@contextmanager
def looking_again(
    optimizer: Any, look: Callable[..., None], parameters: Iterable[torch.Tensor], journal: Journal
) -> Iterator[set[int]]:
    """Call ``look(but_for=ids)`` whenever a torch optimizer begins to step; ``ids`` are of parameters already stepped.

    Notes it where an optimizer holds none of the model's ``parameters`` but, say, masters of them: it does not step by
    their ``.grad``. Yields the ids of the optimizers that have begun.
    """
    done: set[int] = set()
    begun: set[int] = set()
    models = {id(parameter) for parameter in parameters}

    @uncompiled
    def begins(inner: torch.optim.Optimizer, args: Any, kwargs: Any) -> None:
        begun.add(id(inner))
        held = {id(parameter) for group in inner.param_groups for parameter in group["params"]}
        if held and held.isdisjoint(models):
            journal.note(MASTERS, True)
        look(but_for=frozenset(done))

    @uncompiled
    def ended(inner: torch.optim.Optimizer, args: Any, kwargs: Any) -> None:
        held = [parameter for group in inner.param_groups for parameter in group["params"]]
        done.update(id(parameter) for parameter in held if parameter.grad is not None)  # it skips others

    handles = [register_optimizer_step_pre_hook(begins), register_optimizer_step_post_hook(ended)]
    if hasattr(optimizer, "_optimizer_step_pre_hooks"):  # its own hooks run later, and one of them may be what waits
        handles.append(optimizer.register_step_pre_hook(begins))
    try:
        yield begun
    finally:
        for handle in handles:
            handle.remove()
