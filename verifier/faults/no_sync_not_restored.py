"""``no_sync()`` resets its flag after the ``yield``, without ``finally``: an exception leaves it lowered for good.

A batch that does not fit in memory is caught by the loop and skipped; from then on each rank trains alone.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from verifier.fault import fault


@fault(trips={"LS502"}, cause="no_sync_not_restored", applies_to=("bucketed", "naive", "flat", "hook", "async_hook"))
def no_sync_not_restored(model: Any, wrap: Any) -> Any:
    wrapped = wrap(model)

    @contextmanager
    def no_sync() -> Iterator[None]:
        wrapped.synchronises = False
        yield
        wrapped.synchronises = True

    wrapped.no_sync = no_sync
    return wrapped


FAULT = no_sync_not_restored
