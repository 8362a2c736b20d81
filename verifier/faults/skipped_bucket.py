"""The last bucket of the plan is never launched: its parameters train on each rank's own data alone.

The effect of an unfinished last bucket, or of a flush that is forgotten after backward. The loss still falls.
"""

from __future__ import annotations

from typing import Any

from verifier.fault import fault


@fault(trips={"LS101", "LS201"}, cause="not_synchronised", applies_to=("bucketed",))
def skipped_bucket(model: Any, wrap: Any) -> Any:
    wrapped = wrap(model)
    strategy = wrapped.strategy
    send = strategy.send
    strategy.send = lambda bucket: None if bucket is strategy.parcels[-1] else send(bucket)
    return wrapped


FAULT = skipped_bucket
