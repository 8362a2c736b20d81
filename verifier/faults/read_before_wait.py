"""Buckets are averaged and handed out first, and waited for afterwards.

Works on a fast day: the transport has often finished. On a slow one the optimizer steps on half-reduced or local
gradients, and nothing says so. The observer's poison makes every day a slow one.
"""

from __future__ import annotations

from typing import Any

from verifier.fault import fault


@fault(trips={"LS201"}, cause="read_before_wait", applies_to=("bucketed",))
def read_before_wait(model: Any, wrap: Any) -> Any:
    wrapped = wrap(model)
    strategy = wrapped.strategy

    def backward_done() -> None:
        while strategy._num_launched < len(strategy.buckets):
            strategy.launch_next()
        for bucket in strategy.buckets:
            average_of_what_is_there = bucket.buffer.clone()
            strategy.average(average_of_what_is_there)
            bucket.work.wait()
            bucket.buffer.copy_(average_of_what_is_there)
            bucket.hand_out()

    strategy.backward_done = backward_done
    return wrapped


FAULT = read_before_wait
