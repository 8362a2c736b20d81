"""The bytes of a tensor, read without leaving a trace on it.

Special here: ``Tensor.numpy()`` marks a storage as shared for good, and torch does not resize it any more. Strategies
that free memory by resizing a storage to nothing, as FSDP does with what it has gathered, would fail because they were
observed.
"""

from __future__ import annotations

import ctypes

import torch

_T = torch.Tensor
_as_strided, _numel, _view, _numpy, _data_ptr = _T.as_strided, _T.numel, _T.view, _T.numpy, _T.data_ptr


def bytes_of(tensor: torch.Tensor) -> memoryview:
    """The elements of a contiguous, detached CPU tensor, which lives as long as the returned view."""
    # Not reshape(-1): a single element is contiguous at any stride, but view(dtype) needs a stride of 1.
    flat = _view(_as_strided(tensor, (_numel(tensor),), (1,)), torch.uint8)
    place, size = _data_ptr(flat), _numel(flat)
    if not place:  # empty, or a tensor class that keeps its elements elsewhere
        return _numpy(flat).data
    memory = (ctypes.c_ubyte * size).from_address(place)
    memory.tensor = tensor  # type: ignore[attr-defined]
    return memoryview(memory).cast("B")
