"""The last bucket of the plan is never launched: its parameters train on each rank's own data alone.

What an unfinished last bucket does, or a flush that is forgotten after backward. The loss still falls.
"""

from __future__ import annotations

from typing import Any

from verifier.fault import fault


@fault(trips={"LS101", "LS201"}, cause="not_synchronised", applies_to=("bucketed",))
def skipped_bucket(model: Any, wrap: Any) -> Any:
    wrapped = wrap(model)
    wrapped.strategy.buckets.pop()
    forgotten = {id(p) for p in wrapped.strategy.parameters} - {
        id(p) for bucket in wrapped.strategy.buckets for p in bucket.parameters
    }
    report = wrapped.strategy.gradient_ready
    wrapped.strategy.gradient_ready = lambda parameter: None if id(parameter) in forgotten else report(parameter)
    return wrapped


FAULT = skipped_bucket
