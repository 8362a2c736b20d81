"""After the first backward each rank rebuilds its buckets from its *own* ready order, instead of rank 0's.

Right for one step, and as long as all ranks take the same branches (the mechanism of pytorch/pytorch#35137, where
rebuilt indices were not broadcast).
"""

from __future__ import annotations

from typing import Any

from verifier.fault import fault


@fault(trips={"LS101", "LS201", "LS301"}, cause="another_parameters_gradient", applies_to=("bucketed",))
def rebuilt_by_own_order(model: Any, wrap: Any) -> Any:
    wrapped = wrap(model)
    wrapped.strategy.comm.broadcast_object = lambda item, src=0: item
    return wrapped


FAULT = rebuilt_by_own_order
