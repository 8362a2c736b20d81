"""One asynchronous all-reduce per parameter, from the hook that fires when its gradient is final.

Backward continues while gradients are reduced: this is the simplest strategy that overlaps. It still pays the latency
of one call per parameter, which ``bucketed`` avoids.

Special here: between ``send`` and ``arrived`` a gradient belongs to the transport and is neither read nor written; and
the hooks take turns (ddp_core.turns), which published versions of this strategy do not.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

from ddp_core.strategies.hook import Hook
from ddp_core.strategy import CLAIMS_OF_A_WRAPPER, Contract, drop_if_nobody_used, gradient_to_send
from ddp_core.turns import Parcel
from ddp_core.wrapper import DataParallel

CONTRACT = Contract(supports=CLAIMS_OF_A_WRAPPER)


class AsyncHook(Hook):
    def send(self, parcel: Parcel) -> None:
        (parameter,) = parcel.parameters
        used_here = parameter.grad is not None
        gradient = gradient_to_send(parameter)
        memory = gradient.untyped_storage().data_ptr()
        if memory in self._memory_in_flight:  # autograd may give two parameters the same memory
            gradient = gradient.clone()
        self._memory_in_flight.add(memory)
        self._in_flight[id(parameter)] = (gradient, used_here)
        parcel.work = self.comm.all_reduce_async(gradient)

    def arrived(self, parcel: Parcel) -> None:
        (parameter,) = parcel.parameters
        gradient, used_here = self._in_flight.pop(id(parameter))
        parameter.grad = gradient
        drop_if_nobody_used(parameter, used_here=used_here)
        self.average(gradient)

    def reset(self) -> None:
        super().reset()
        self._memory_in_flight: set[int] = set()
        self._in_flight: dict[int, tuple[torch.Tensor, bool]] = {}

    def __repr__(self) -> str:
        return "AsyncHook()"


def wrap(model: nn.Module, **options: Any) -> DataParallel:
    return DataParallel(model, AsyncHook(), **options)
