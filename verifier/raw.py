"""The bytes that a tensor lies on, read without leaving a trace on it.

Special here: ``Tensor.numpy()`` marks a storage as shared for good, and torch does not resize it any more. Strategies
that give memory back by resizing a storage to nothing, as FSDP does with what it has gathered, would fail for having
been looked at.
"""

from __future__ import annotations

import ctypes

import torch

_T = torch.Tensor
_as_strided, _numel, _view, _numpy, _data_ptr = _T.as_strided, _T.numel, _T.view, _T.numpy, _T.data_ptr


def bytes_of(tensor: torch.Tensor) -> memoryview:
    """The elements of a contiguous, detached tensor on the CPU, which lives for as long as what is returned."""
    # Not reshape(-1): one element may lie at any stride and be contiguous, and view(dtype) asks for a stride of 1.
    flat = _view(_as_strided(tensor, (_numel(tensor),), (1,)), torch.uint8)
    place, size = _data_ptr(flat), _numel(flat)
    if not place:  # nothing, or a class of tensor that has its elements elsewhere
        return _numpy(flat).data
    memory = (ctypes.c_ubyte * size).from_address(place)
    memory.tensor = tensor  # type: ignore[attr-defined]
    return memoryview(memory).cast("B")
