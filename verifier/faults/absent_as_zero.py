"""A parameter that no rank used is sent as +0.0, and so arrives as a gradient of zeros instead of None.

Momentum and weight decay then move a parameter that a single process leaves alone (pytorch/pytorch#28294).
"""

from __future__ import annotations

from typing import Any

import torch

from ddp_core import bucket as buckets
from verifier.fault import fault


@fault(trips={"LS202"}, cause="unused_parameter_moved", applies_to=("bucketed",))
def absent_as_zero(model: Any, wrap: Any) -> Any:
    def zero(gradient: torch.Tensor) -> torch.Tensor:
        return gradient.detach().zero_()

    buckets.mark_absent = zero  # safe to patch: this process trains nothing else
    return wrap(model)


FAULT = absent_as_zero
