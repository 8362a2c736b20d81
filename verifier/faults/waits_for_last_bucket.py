"""Only the last bucket's all-reduce is waited for; those before it are assumed to have finished by then.

That holds for a transport that works through one queue in order, but no transport has to. Every other bucket is handed
out while it is in flight.
"""

from __future__ import annotations

from typing import Any

from verifier.fault import fault


@fault(trips={"LS201", "LS401", "LS402"}, cause="read_before_wait", applies_to=("bucketed",))
def waits_for_last_bucket(model: Any, wrap: Any) -> Any:
    wrapped = wrap(model)
    strategy = wrapped.strategy
    send = strategy.send

    def send_and_forget(bucket: Any) -> None:
        send(bucket)
        if bucket is not strategy.parcels[-1]:
            bucket.work = None

    strategy.send = send_and_forget
    return wrapped


FAULT = waits_for_last_bucket
