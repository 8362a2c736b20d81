"""Declares bfloat16 on the wire, and triples its gradients from the second step on: more than any rounding.

A class of mistake: error feedback, or a loss scale, that is applied twice once it has something to apply. A contract
that allows a loss must not allow everything.
"""

from __future__ import annotations

from ddp_core import Contract
from ddp_core.strategies import naive

TRIPS = {"LS201"}
CAUSE = {"missing_average", "rescaled"}  # tripled is summed over three: on three ranks it looks the same
CONTRACT = Contract(lossy="bfloat16")


def wrap(model):
    wrapped = naive.wrap(model)
    done, average, count = wrapped.strategy.backward_done, wrapped.strategy.average, [0]

    def counted():
        count[0] += 1
        done()

    def tripled(gradient, out=None):
        mean = average(gradient, out)
        return mean if count[0] < 2 else mean.mul_(3)

    wrapped.strategy.backward_done, wrapped.strategy.average = counted, tripled
    return wrapped
