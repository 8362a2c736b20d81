"""A second look at gradients, when an optimizer begins inside the one that the loop holds.

Special here: some strategies synchronise in ``step()`` and step an inner optimizer then, which is the latest moment at
which gradients must be right. Where there are several (Muon for matrices, AdamW for the rest), one that has ended may
have changed the gradients of its own parameters, as its rule likes; those are not looked at again.
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
    """Call ``look(but_for=ids)`` whenever one of torch's kind begins, with the ids of parameters that are done with.

    Noted where one begins that holds others than the model's ``parameters``, masters of them: it does not step by what
    these have in ``.grad``.
    Yields the ids of those that have begun.
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
        done.update(id(parameter) for parameter in held if parameter.grad is not None)  # others it has passed over

    handles = [register_optimizer_step_pre_hook(begins), register_optimizer_step_post_hook(ended)]
    if hasattr(optimizer, "_optimizer_step_pre_hooks"):  # its own come later, and may be what waits
        handles.append(optimizer.register_step_pre_hook(begins))
    try:
        yield begun
    finally:
        for handle in handles:
            handle.remove()
