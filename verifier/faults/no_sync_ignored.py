"""``no_sync()`` enters and leaves, and every backward inside it is synchronised all the same.

The numbers are right, because the mean of means is the mean. But the point of no_sync is lost: K times the traffic.
"""

from __future__ import annotations

from contextlib import nullcontext
from typing import Any

from verifier.fault import fault


@fault(trips={"LS501"}, cause="no_sync_ignored", applies_to=("bucketed", "naive", "flat", "hook", "async_hook"))
def no_sync_ignored(model: Any, wrap: Any) -> Any:
    wrapped = wrap(model)
    wrapped.no_sync = nullcontext
    return wrapped


FAULT = no_sync_ignored
