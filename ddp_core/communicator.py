"""A communicator: the five operations that a synchroniser needs from any network.

Special here: all-reduces are counted apart from broadcasts. All-reduces recur every step, and bucketing reduces their
number; broadcasts happen once, at the start. This base class keeps the counts, so every network counts alike. It also
sends elements in the order of their indices, whatever the strides on this rank.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any, Protocol

import torch

from ddp_core.comm import Comm


class Ranks(Protocol):
    """The attributes that a sum over ranks needs. ``Comm`` and every ``Communicator`` have them."""

    rank: int
    world_size: int

    def all_reduce(self, tensor: torch.Tensor) -> None: ...


class Communicator(ABC):
    """One rank's view of a group of ranks. Every method is collective: all ranks call it, in the same order.

    ``num_calls`` and ``num_bytes`` count all-reduces, ``num_broadcasts`` and ``num_broadcast_bytes`` broadcasts. A
    tensor of n elements of s bytes counts n*s bytes, however many bytes the network's algorithm moves.
    """

    rank: int
    world_size: int

    def __init__(self) -> None:
        self.reset_counts()

    def all_reduce(self, tensor: torch.Tensor) -> None:
        """Replace ``tensor`` (any shape, any strides) on every rank by the sum over ranks. Blocks.

        Raises TypeError for a dtype that the network cannot add up.
        """
        wire = _in_index_order(tensor)
        self._all_reduce(wire)
        _put_back(wire, tensor)
        self.num_calls += 1
        self.num_bytes += tensor.numel() * tensor.element_size()

    def bcast(self, tensor: torch.Tensor, root: int = 0) -> None:
        """Replace ``tensor`` (same shape and dtype everywhere) on every rank by rank ``root``'s. Blocks."""
        wire = _in_index_order(tensor)
        self._bcast(wire, root)
        _put_back(wire, tensor)
        self.num_broadcasts += 1
        self.num_broadcast_bytes += tensor.numel() * tensor.element_size()

    def gather(self, item: Any, root: int = 0) -> list[Any] | None:
        """Every rank's ``item`` (small, picklable), by rank, on rank ``root``; None on the others."""
        items = self.gather_objects(item)
        return items if self.rank == root else None

    @abstractmethod
    def gather_objects(self, item: Any) -> list[Any]:
        """Every rank's ``item`` (small, picklable), by rank, on every rank."""

    @abstractmethod
    def barrier(self) -> None:
        """Return when every rank has called this."""

    @abstractmethod
    def _all_reduce(self, tensor: torch.Tensor) -> None:
        """As ``all_reduce``; ``tensor`` is contiguous."""

    @abstractmethod
    def _bcast(self, tensor: torch.Tensor, root: int) -> None:
        """As ``bcast``; ``tensor`` is contiguous."""

    def reset_counts(self) -> None:
        """Count from zero again, on this rank."""
        self.num_calls = self.num_bytes = 0
        self.num_broadcasts = self.num_broadcast_bytes = 0

    def __repr__(self) -> str:
        reduced = f"num_calls={self.num_calls}, num_bytes={self.num_bytes}"
        sent = f"num_broadcasts={self.num_broadcasts}, num_broadcast_bytes={self.num_broadcast_bytes}"
        return f"{type(self).__name__}(rank={self.rank}, world_size={self.world_size}, {reduced}, {sent})"


class TorchCommunicator(Communicator):
    """Over torch.distributed: gloo, NCCL, or whatever the process group was made with.

    Raises RuntimeError when no process group is initialised.
    """

    def __init__(self, comm: Comm | None = None) -> None:
        super().__init__()
        self.comm = comm or Comm()
        self.rank, self.world_size = self.comm.rank, self.comm.world_size

    def gather_objects(self, item: Any) -> list[Any]:
        return self.comm.gather_objects(item)

    def barrier(self) -> None:
        self.comm.barrier()

    def _all_reduce(self, tensor: torch.Tensor) -> None:
        self.comm.all_reduce(tensor)

    def _bcast(self, tensor: torch.Tensor, root: int) -> None:
        self.comm.broadcast(tensor, src=root)


def _in_index_order(tensor: torch.Tensor) -> torch.Tensor:
    """``tensor`` if its memory holds its elements in the order of their indices, else a copy that does.

    Networks add memory, not indices. If one rank's gradient is transposed in memory and another's is not, adding them
    without a copy would add different elements.
    """
    return tensor.detach().resolve_conj().resolve_neg().contiguous()


def _put_back(wire: torch.Tensor, tensor: torch.Tensor) -> None:
    if wire.data_ptr() != tensor.data_ptr():
        with torch.no_grad():
            tensor.copy_(wire)
