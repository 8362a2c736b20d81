"""Gradients are divided on their way into the bucket, and the bucket once more when it is back.

Either place may divide, but both do: the learning rate is silently divided by the world size.
"""

from __future__ import annotations

from typing import Any

from verifier.fault import fault


@fault(trips={"LS201"}, cause="averaged_twice", applies_to=("bucketed",))
def averaged_on_arrival_too(model: Any, wrap: Any) -> Any:
    wrapped = wrap(model)
    strategy = wrapped.strategy
    arrived = strategy.arrived

    def average_and_hand_out(bucket: Any) -> None:
        strategy.average(bucket.buffer)
        arrived(bucket)

    strategy.arrived = average_and_hand_out
    return wrapped


FAULT = averaged_on_arrival_too
