"""Buffers are not broadcast before a forward: each rank's BatchNorm keeps statistics of its own data.

Weights stay in lockstep all the while. An evaluation or a checkpoint depends on the rank that makes it.
"""

from __future__ import annotations

from typing import Any

from verifier.fault import fault


@fault(trips={"LS102"}, cause="buffers_diverged", applies_to=("bucketed", "naive", "flat", "hook", "async_hook"))
def buffers_left_alone(model: Any, wrap: Any) -> Any:
    wrapped = wrap(model)
    wrapped.broadcast_buffers = False
    return wrapped


FAULT = buffers_left_alone
