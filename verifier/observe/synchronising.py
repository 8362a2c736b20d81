"""Waiting for a whole device: on a GPU, ``torch.cuda.synchronize()`` is a way to wait for every collective.

Special here: it does not say for which. So everything that the transport has done by then has landed, as if the caller
had asked for each.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import torch

from verifier.uncompiled import uncompiled

if TYPE_CHECKING:
    from verifier.observe.observer import Observer

_patched: list[Any] = []  # once in a process


def watch(observers: Sequence[Observer]) -> None:
    """Tell ``observers`` from here on whenever the GPU has been waited for. Nothing is done if CUDA was not started."""
    if _patched or not torch.cuda.is_initialized():
        return
    homes: tuple[Any, ...] = (torch.cuda, torch.accelerator)
    for home in homes:
        _patched.append(home.synchronize)
        home.synchronize = _telling(home.synchronize, observers)


def _telling(plain: Any, observers: Sequence[Observer]) -> Any:
    @uncompiled
    def synchronize(*args: Any, **kwargs: Any) -> None:
        plain(*args, **kwargs)
        for observer in observers:
            observer.synchronised()

    return synchronize
