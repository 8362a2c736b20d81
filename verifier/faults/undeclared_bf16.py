"""Gradients travel as bfloat16 although the contract promises that nothing is lost on the wire.

An option that some default switches on. All replicas agree, but only three digits are right.
"""

from __future__ import annotations

from typing import Any

from ddp_core.strategies.bucketed import Bucketed
from ddp_core.wrapper import DataParallel
from verifier.fault import fault


@fault(trips={"LS201"}, cause="rounded_on_the_wire", applies_to=("bucketed",))
def undeclared_bf16(model: Any, wrap: Any) -> Any:
    return DataParallel(model, Bucketed(0.0003, wire="bf16"))


FAULT = undeclared_bf16
