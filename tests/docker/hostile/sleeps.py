"""Honest, and slow: two seconds between its steps, so that a test can do something to it meanwhile."""

import time

from ddp_core.strategies.naive import CONTRACT as CONTRACT
from ddp_core.strategies.naive import wrap as honest


def wrap(model):
    wrapped = honest(model)
    forward = wrapped.forward

    def slow(*inputs):
        time.sleep(2)
        return forward(*inputs)

    wrapped.forward = slow
    return wrapped
