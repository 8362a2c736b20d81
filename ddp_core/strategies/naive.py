"""One blocking all-reduce per parameter, after backward: the simplest strategy, to read before all others.

Nothing overlaps, and every small tensor pays the full latency of a collective. But little can go wrong: all ranks
reduce the same list in the same order.
"""

from __future__ import annotations

from typing import Any

from torch import nn

from ddp_core.strategy import CLAIMS_OF_A_WRAPPER, Contract, Strategy, drop_if_nobody_used, gradient_to_send
from ddp_core.wrapper import DataParallel

CONTRACT = Contract(supports=CLAIMS_OF_A_WRAPPER)


class Naive(Strategy):
    def backward_done(self) -> None:
        for parameter in self.parameters:
            used_here = parameter.grad is not None
            gradient = gradient_to_send(parameter)
            self.comm.all_reduce(gradient)
            drop_if_nobody_used(parameter, used_here=used_here)
            self.average(gradient)

    def __repr__(self) -> str:
        return "Naive()"


def wrap(model: nn.Module, **options: Any) -> DataParallel:
    return DataParallel(model, Naive(), **options)
