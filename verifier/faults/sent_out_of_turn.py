"""A bucket leaves when it is complete, without waiting for those before it: launch order is arrival order.

Each bucket's contents are the same on every rank, but the n-th bucket that one rank sends meets another one's n-th.
"""

from __future__ import annotations

from typing import Any

from verifier.fault import fault


@fault(
    trips={"LS101", "LS201", "LS301"},
    cause="collectives_differ",
    applies_to=("bucketed", "hook", "async_hook"),
)
def sent_out_of_turn(model: Any, wrap: Any) -> Any:
    wrapped = wrap(model)
    strategy = wrapped.strategy
    gradient_ready = strategy.gradient_ready

    def send_when_complete(parameter: Any) -> None:
        _, parcel = strategy._place[id(parameter)]
        if parcel.num_waiting == 1:  # this one completes it: bring it to the head of the queue
            order, sent = strategy.parcels, strategy.num_sent
            order.insert(sent, order.pop(next(i for i, p in enumerate(order) if p is parcel)))
        gradient_ready(parameter)

    strategy.gradient_ready = send_when_complete
    return wrapped


FAULT = sent_out_of_turn
