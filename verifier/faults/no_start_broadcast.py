"""Replicas are not made equal when they are wrapped: each trains weights of its own with all ranks' gradients.

If every rank builds its model from the same seed, the mistake is invisible.
"""

from __future__ import annotations

from typing import Any
from unittest import mock

from ddp_core.wrapper import DataParallel
from verifier.fault import fault


@fault(
    trips={"LS001", "LS002"},
    cause="no_initial_broadcast",
    applies_to=("bucketed", "naive", "flat", "hook", "async_hook"),
)
def no_start_broadcast(model: Any, wrap: Any) -> Any:
    with mock.patch.object(DataParallel, "broadcast_state", return_value=None):
        return wrap(model)


FAULT = no_start_broadcast
