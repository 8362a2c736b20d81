"""The place in the queue is not reset between backwards: after the first step nothing leaves any more.

A test of one step is green. The mechanism of pytorch/pytorch#143580, where reductions stop after the first iteration.
"""

from __future__ import annotations

from typing import Any

from verifier.fault import fault


@fault(trips={"LS101", "LS201"}, cause="not_synchronised", applies_to=("bucketed", "hook"))
def counters_not_reset(model: Any, wrap: Any) -> Any:
    wrapped = wrap(model)
    strategy = wrapped.strategy
    reset = strategy.reset

    def reset_all_but_the_queue() -> None:
        sent = strategy.num_sent
        reset()
        strategy.num_sent = sent

    strategy.reset = reset_all_but_the_queue
    return wrapped


FAULT = counters_not_reset
