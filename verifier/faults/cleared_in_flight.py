"""The buffer is cleared for the next step as soon as it has been handed to the transport.

A fast transport has read all of it by then. With a slow one zeros are averaged, without an error.
"""

from __future__ import annotations

from typing import Any

from verifier.fault import fault


@fault(trips={"LS401"}, cause="written_in_flight", applies_to=("bucketed",))
def cleared_in_flight(model: Any, wrap: Any) -> Any:
    wrapped = wrap(model)
    send = wrapped.strategy.send

    def send_and_clear(bucket: Any) -> None:
        send(bucket)
        bucket.buffer.zero_()

    wrapped.strategy.send = send_and_clear
    return wrapped


FAULT = cleared_in_flight
