"""Buckets are handed out while they are in flight, and waited for when the next backward begins.

A fast transport has often finished by then. With a slow one the optimizer steps by half-reduced or local gradients,
without an error. The observer's marker in tensors in flight has the effect of a slow transport every time.
"""

from __future__ import annotations

from typing import Any

from verifier.fault import fault


@fault(trips={"LS201", "LS401", "LS402"}, cause="read_before_wait", applies_to=("bucketed",))
def read_before_wait(model: Any, wrap: Any) -> Any:
    wrapped = wrap(model)
    strategy = wrapped.strategy

    send, backward_started = strategy.send, strategy.backward_started
    in_flight = []

    def send_and_forget(bucket: Any) -> None:
        send(bucket)
        in_flight.append(bucket.work)
        bucket.work = None

    def wait_too_late() -> None:
        while in_flight:
            in_flight.pop().wait()
        backward_started()

    strategy.send, strategy.backward_started = send_and_forget, wait_too_late
    return wrapped


FAULT = read_before_wait
