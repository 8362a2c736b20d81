"""A device that is waited for as a whole: on a GPU, ``torch.cuda.synchronize()`` is a way to wait for every collective.

Special here: it tells nobody which. So all that the transport has done by then has landed, as if each had been asked.
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
    """Tell ``observers`` whenever the GPU has been waited for, from here on. Nothing where CUDA was not started."""
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
