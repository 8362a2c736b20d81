"""Broadcasts many tensors in few messages, because each message costs its latency whatever its size.

Special here: small tensors of one dtype and device travel together in a flat copy, up to a cap (as torch's DDP does,
with its ``broadcast_bucket_size``). A tensor that is alone in its message is sent without a copy.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator

import torch

from ddp_core.comm import Comm

CAP_BYTES = 25 * 2**20


def broadcast_all(comm: Comm, tensors: Iterable[torch.Tensor], src: int) -> None:
    """Replace each tensor on every rank by group rank ``src``'s; all ranks pass the same shapes in the same order."""
    by_kind: defaultdict[tuple[torch.dtype, torch.device], list[torch.Tensor]] = defaultdict(list)
    for tensor in {id(tensor): tensor for tensor in tensors}.values():
        # .data: an earlier forward's graph may have saved this tensor, so its version counter must not change
        by_kind[tensor.dtype, tensor.device].append(tensor.data)
    for alike in by_kind.values():
        for parcel in _parcels(alike):
            _broadcast(comm, parcel, src)


def _parcels(tensors: list[torch.Tensor]) -> Iterator[list[torch.Tensor]]:
    """Yield ``tensors`` in order, in groups of at most ``CAP_BYTES``; a larger tensor forms a group alone."""
    parcel, filled = list[torch.Tensor](), 0
    for tensor in tensors:
        size = tensor.numel() * tensor.element_size()
        if parcel and filled + size > CAP_BYTES:
            yield parcel
            parcel, filled = [], 0
        parcel.append(tensor)
        filled += size
    if parcel:
        yield parcel


def _broadcast(comm: Comm, parcel: list[torch.Tensor], src: int) -> None:
    if len(parcel) == 1:
        comm.broadcast(parcel[0], src)
        return
    flat = torch.cat([tensor.reshape(-1) for tensor in parcel])
    comm.broadcast(flat, src)
    for tensor, part in zip(parcel, flat.split([tensor.numel() for tensor in parcel]), strict=True):
        tensor.copy_(part.view(tensor.shape))
