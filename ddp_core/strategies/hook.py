"""One blocking all-reduce per parameter, from the hook that fires when its gradient is final.

A first step towards overlap, but without overlap: backward waits while each gradient is reduced. Published
measurements show it no faster than ``naive`` (both make the same calls); it is here because it isolates one idea.

Special here: the hooks take turns (ddp_core.turns). Published versions of this strategy usually reduce in the order in
which hooks fire, which adds up different parameters as soon as two ranks take different branches.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from torch import nn

from ddp_core.comm import Comm
from ddp_core.strategy import CLAIMS_OF_A_WRAPPER, Contract, drop_if_nobody_used, gradient_to_send
from ddp_core.turns import InTurn, Parcel
from ddp_core.wrapper import DataParallel

CONTRACT = Contract(supports=CLAIMS_OF_A_WRAPPER)


class Hook(InTurn):
    def prepare(self, named_parameters: Sequence[tuple[str, nn.Parameter]], comm: Comm) -> None:
        super().prepare(named_parameters, comm)
        # Reverse registration order: roughly the order in which backward finishes them.
        self.set_parcels([Parcel([parameter]) for parameter in reversed(self.parameters)])

    def send(self, parcel: Parcel) -> None:
        (parameter,) = parcel.parameters
        used_here = parameter.grad is not None
        gradient = gradient_to_send(parameter)
        self.comm.all_reduce(gradient)
        drop_if_nobody_used(parameter, used_here=used_here)
        self.average(gradient)

    def arrived(self, parcel: Parcel) -> None:
        """Do nothing: ``send`` has waited for the sum and divided it."""

    def __repr__(self) -> str:
        return "Hook()"


def wrap(model: nn.Module, **options: Any) -> DataParallel:
    return DataParallel(model, Hook(), **options)
