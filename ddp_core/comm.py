"""The collectives that our own strategies use, with counts of calls and bytes.

Special here: gloo reads a strided view as if it were dense and returns a wrong sum without an error
(https://github.com/pytorch/pytorch/issues/192920, also in all_reduce), so a tensor with gaps in its memory is sent as a
dense copy. NCCL refuses a tensor that is dense but transposed, so its memory is sent as a flat view. Everything else is
a thin call to torch.distributed.
"""

from __future__ import annotations

from typing import Any, Protocol

import torch
import torch.distributed as dist


class Pending(Protocol):
    """A collective in flight. Until ``wait()`` returns, its tensor must be neither read nor written."""

    def wait(self) -> Any: ...


class Comm:
    """One rank's view of a process group.

    ``num_calls`` and ``num_bytes`` count this rank's calls: a call on a tensor of n elements of s bytes counts n*s
    bytes, however many bytes the backend's algorithm moves.

    Raises RuntimeError when no process group is initialised.
    """

    def __init__(self, group: dist.ProcessGroup | None = None) -> None:
        if not dist.is_initialized():
            raise RuntimeError(
                "there is no process group: call torch.distributed.init_process_group() before wrapping a model"
            )
        self.group = group
        self.rank: int = dist.get_rank(group)
        self.world_size: int = dist.get_world_size(group)
        self.num_calls = 0
        self.num_bytes = 0

    def all_reduce(self, tensor: torch.Tensor) -> None:
        """Replace ``tensor`` on every rank by the sum over ranks. Blocks."""
        wire = _wire(tensor)
        self._count(wire)
        dist.all_reduce(wire, op=dist.ReduceOp.SUM, group=self.group)
        _put_back(wire, tensor)

    def all_reduce_async(self, tensor: torch.Tensor) -> Pending:
        """Begin to replace ``tensor`` by the sum over ranks. ``tensor`` must be dense (a flat buffer is).

        Raises ValueError for a tensor with holes: the result would have to be copied back after ``wait()``.
        """
        wire = _wire(tensor)
        if not _share_memory(wire, tensor):
            raise ValueError(
                f"all_reduce_async needs dense memory, got shape {tuple(tensor.shape)}, stride {tensor.stride()}"
            )
        self._count(wire)
        work = dist.all_reduce(wire, op=dist.ReduceOp.SUM, group=self.group, async_op=True)
        assert work is not None  # None means that this process is not in the group
        return work

    def all_to_all_async(self, received: torch.Tensor, sent: torch.Tensor) -> Pending:
        """Begin to send the r-th part of ``sent`` to rank r, and to receive every rank's part for this one, by rank."""
        self._count(sent)
        work = dist.all_to_all_single(received, sent, group=self.group, async_op=True)
        assert work is not None
        return work

    def broadcast(self, tensor: torch.Tensor, src: int = 0) -> None:
        """Replace ``tensor`` on every rank by group rank ``src``'s. Blocks."""
        wire = _wire(tensor)
        self._count(wire)
        dist.broadcast(wire, group=self.group, group_src=src)
        _put_back(wire, tensor)

    def gather_objects(self, item: Any) -> list[Any]:
        """Return every rank's ``item`` (small, picklable), by rank. For set-up, not for the training loop."""
        items: list[Any] = [None] * self.world_size
        dist.all_gather_object(items, item, group=self.group)
        return items

    def all_gather(self, tensor: torch.Tensor) -> list[torch.Tensor]:
        """Every rank's ``tensor`` (same shape and dtype everywhere), by rank. Blocks."""
        tensor = tensor.contiguous()
        self._count(tensor)
        gathered = [torch.empty_like(tensor) for _ in range(self.world_size)]
        dist.all_gather(gathered, tensor, group=self.group)
        return gathered

    def broadcast_object(self, item: Any, src: int = 0) -> Any:
        """Group rank ``src``'s ``item`` (small, picklable), on every rank. For set-up, not for the training loop."""
        box = [item]
        dist.broadcast_object_list(box, group=self.group, group_src=src)
        return box[0]

    def shares(self, other: Comm) -> bool:
        """Return whether both use the same process group."""
        return (self.group or dist.group.WORLD) is (other.group or dist.group.WORLD)

    def serves(self, device: torch.device) -> bool:
        """Return whether this process group can send tensors on ``device``."""
        group = self.group or dist.group.WORLD
        assert group is not None  # the constructor has checked that there is a process group
        return device.type in {served.type for served in group._device_types}

    def barrier(self) -> None:
        dist.barrier(group=self.group)

    def _count(self, tensor: torch.Tensor) -> None:
        self.num_calls += 1
        self.num_bytes += tensor.numel() * tensor.element_size()

    def __repr__(self) -> str:
        counted = f"num_calls={self.num_calls}, num_bytes={self.num_bytes}"
        return f"Comm(rank={self.rank}, world_size={self.world_size}, {counted})"


def _wire(tensor: torch.Tensor) -> torch.Tensor:
    """The tensor to hand to the backend: ``tensor`` itself if contiguous; a flat view of its memory if it is dense in
    another order of axes, which is the same on every rank; else a contiguous copy.
    """
    if tensor.is_contiguous():
        return tensor
    if torch.ops.aten.is_non_overlapping_and_dense(tensor):
        return tensor.detach().as_strided((tensor.numel(),), (1,))
    return tensor.contiguous()


def _share_memory(wire: torch.Tensor, tensor: torch.Tensor) -> bool:
    return wire is tensor or wire.data_ptr() == tensor.data_ptr()


def _put_back(wire: torch.Tensor, tensor: torch.Tensor) -> None:
    if not _share_memory(wire, tensor):
        tensor.copy_(wire)
