"""Readiness counters and the place in the queue are not reset between backwards: nothing leaves after the first step.

A test of one step is green. The mechanism of pytorch/pytorch#143580, where reductions stop after the first iteration.
"""

from __future__ import annotations

from typing import Any

from verifier.fault import fault


@fault(trips={"LS101", "LS201"}, cause="not_synchronised", applies_to=("bucketed", "hook", "async_hook"))
def counters_not_reset(model: Any, wrap: Any) -> Any:
    wrapped = wrap(model)
    strategy = wrapped.strategy
    set_parcels, reset = strategy.set_parcels, strategy.reset

    def set_parcels_and_reset(parcels: Any) -> None:
        set_parcels(parcels)
        reset()

    strategy.reset, strategy.set_parcels = lambda: None, set_parcels_and_reset
    strategy.rebuild, strategy._ready_order = False, None  # a rebuild would start anew, and right
    return wrapped


FAULT = counters_not_reset
