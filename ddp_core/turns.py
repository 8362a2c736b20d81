"""Sends gradients in parcels, and the parcels in one order that is fixed beforehand and equal on every rank.

Gradients become ready in an order that may legally differ from rank to rank: a data-dependent branch, an expert, a
parameter that is unused here. Collectives have no addresses: the n-th on one rank meets the n-th on the others. So a
parcel is sent only when it is complete *and* all parcels before it have been sent. A parcel that is ready early waits
its turn; parcels that are incomplete when backward is over are sent then, absent gradients included.

Special here: an overlapped strategy without this fixed order adds up different parameters on different ranks (24 of 39
public wrappers do, when a branch depends on the rank).
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence

from torch import nn

from ddp_core.comm import Pending
from ddp_core.strategy import Strategy


class Parcel:
    """Parameters whose gradients travel together."""

    def __init__(self, parameters: Sequence[nn.Parameter]) -> None:
        self.parameters = list(parameters)
        self.num_waiting = len(self.parameters)
        self.work: Pending | None = None


class InTurn(Strategy):
    """A strategy that sends ``parcels`` while backward is running, each in its turn."""

    def set_parcels(self, parcels: Sequence[Parcel]) -> None:
        """Fix the parcels and their order, which must be the same on every rank. Call it only between backwards."""
        self.parcels = list(parcels)
        self._place = {id(p): (number, parcel) for number, parcel in enumerate(parcels) for p in parcel.parameters}
        self.reset()

    def reset(self) -> None:
        self.num_sent = 0
        self._ready: set[int] = set()
        for parcel in self.parcels:
            parcel.num_waiting, parcel.work = len(parcel.parameters), None

    def backward_started(self) -> None:
        self.reset()

    def gradient_ready(self, parameter: nn.Parameter) -> None:
        if id(parameter) in self._ready:
            self.gradient_late(parameter)
            return
        self._ready.add(id(parameter))
        _, parcel = self._place[id(parameter)]
        self.take(parcel, parameter)
        parcel.num_waiting -= 1
        while self.num_sent < len(self.parcels) and self.parcels[self.num_sent].num_waiting == 0:
            self.send_next()

    def gradient_late(self, parameter: nn.Parameter) -> None:
        """Take note of a further part of a gradient, from a re-entrant checkpoint: its parcel waits for backward's end.

        Raises RuntimeError if the parcel was sent already, because the mean would then be wrong.
        """
        number, parcel = self._place[id(parameter)]
        if id(parameter) not in self._ready:
            return
        if number < self.num_sent:
            name = self.names[next(i for i, p in enumerate(self.parameters) if p is parameter)]
            raise RuntimeError(
                f"parameter '{name}' received another gradient after its first had been sent: it is used both inside "
                "and outside a re-entrant checkpoint. Use checkpoint(..., use_reentrant=False), or a strategy that "
                "waits for the end of backward (flat, naive)."
            )
        self._ready.remove(id(parameter))
        parcel.num_waiting += 1

    def send_next(self) -> None:
        """Send the next parcel."""
        parcel = self.parcels[self.num_sent]
        self.num_sent += 1
        self.send(parcel)

    def backward_done(self) -> None:
        while self.num_sent < len(self.parcels):  # parcels with a gradient that is absent or late on this rank
            for parameter in self.parcels[self.num_sent].parameters:
                if id(parameter) not in self._ready:
                    self.take(self.parcels[self.num_sent], parameter)
            self.send_next()
        for parcel in self.parcels:
            if parcel.work is not None:
                parcel.work.wait()
                parcel.work = None
            self.arrived(parcel)

    def take(self, parcel: Parcel, parameter: nn.Parameter) -> None:
        """Put ``parameter.grad`` (None: this rank has none) into ``parcel``. Called again for late gradients."""

    @abstractmethod
    def send(self, parcel: Parcel) -> None:
        """Begin to sum ``parcel`` over ranks; leave the work in ``parcel.work``, or None if it is done."""

    @abstractmethod
    def arrived(self, parcel: Parcel) -> None:
        """Leave the mean in every ``parameter.grad`` of ``parcel``, whose sum has arrived."""
