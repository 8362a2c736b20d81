"""Gradients are summed over ranks and never divided: the learning rate is silently multiplied by the world size.

All replicas agree, so lockstep checks see nothing; Adam hides it, because it is blind to scale.
"""

from __future__ import annotations

from typing import Any

from verifier.fault import fault


@fault(trips={"LS201"}, cause="missing_average", applies_to=("async_hook", "bucketed", "flat", "hook", "naive"))
def sum_instead_of_mean(model: Any, wrap: Any) -> Any:
    wrapped = wrap(model)
    wrapped.strategy.average = lambda gradient, out=None: gradient if out is None else out.copy_(gradient)
    return wrapped


FAULT = sum_instead_of_mean
