"""What a tensor in flight holds, and how a write to it is detected.

Special here: the poison is a *signalling* NaN. A copy keeps it as it is, and arithmetic makes it quiet: even
``mul_(0.5)`` leaves a trace. An output is untouched if it still holds the poison, byte by byte, and an input if its
digest has not changed. Version counters would not do: ``.data``, numpy and raw views bypass them, and all views of one
buffer share one, so that two collectives on two halves of a buffer would accuse each other. Our own writes go through
``.data``: torch's transports do not count as in-place writes for autograd, so neither must we.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
import xxhash

from verifier.raw import bytes_of

# NaNs whose payload says "poison", as arithmetic leaves them: these tell our NaN from a strategy's own NaN.
POISON_FLOAT32 = 0x7FC0DEAD
POISON_FLOAT64 = 0x7FF80000DEADDEAD

# How the bits of each dtype are written and read, and the pattern: a NaN without its quiet bit, or the largest integer.
# Not here: bool (any pattern is a legal value or undefined behaviour), complex (see ``_bits``), quantized.
_PATTERNS: dict[torch.dtype, tuple[torch.dtype, int]] = {
    torch.float32: (torch.int32, POISON_FLOAT32 & ~(1 << 22)),
    torch.float64: (torch.int64, POISON_FLOAT64 & ~(1 << 51)),
    torch.float16: (torch.int16, 0x7CAD),
    torch.bfloat16: (torch.int16, 0x7F9E),
    torch.float8_e4m3fn: (torch.uint8, 0x7F),
    torch.float8_e5m2: (torch.uint8, 0x7D),
    torch.int8: (torch.int8, 0x7F),
    torch.int16: (torch.int16, 0x7FFF),
    torch.int32: (torch.int32, 0x7FFFFFFF),
    torch.int64: (torch.int64, 0x7FFFFFFFFFFFFFFF),
    torch.uint8: (torch.uint8, 0xFF),
    torch.uint16: (torch.int16, -1),
    torch.uint32: (torch.int32, -1),
    torch.uint64: (torch.int64, -1),
}

WHOLE = 1 << 24  # inputs up to this many bytes are digested whole; of larger ones, PIECES pieces of PIECE bytes
PIECES, PIECE = 16, 1 << 16


def spoil(tensor: torch.Tensor) -> bool:
    """Fill a tensor in flight with a pattern that is no plausible result. Return False if its dtype has none."""
    found = _bits(tensor)
    if found is None:
        return False
    bits, pattern = found
    bits.fill_(pattern)
    return True


def same_bits(one: torch.Tensor, other: torch.Tensor) -> bool:
    """Return whether two tensors of one dtype hold the same, byte by byte. A NaN equals itself here."""
    found = [bits[0] for tensor in (one, other) if (bits := _bits(tensor)) is not None]
    return torch.equal(*(found if len(found) == 2 else (one, other)))


def is_spoilt(tensor: torch.Tensor) -> bool:
    """Return whether ``tensor`` holds, everywhere, what ``spoil`` put there."""
    found = _bits(tensor)
    if found is None or tensor.numel() == 0:
        return True
    bits, pattern = found
    low, high = torch.aminmax(bits)
    return int(low) == pattern == int(high)


def _bits(tensor: torch.Tensor) -> tuple[torch.Tensor, int] | None:
    plain = tensor.data
    if plain.is_complex():
        plain = torch.view_as_real(plain)
    if plain.dtype not in _PATTERNS:
        return None
    dtype, pattern = _PATTERNS[plain.dtype]
    return plain.view(dtype), pattern


def digest(tensor: torch.Tensor) -> int | None:
    """Return xxh3 of an input's bytes, sampled where it is large. None: not read (on an accelerator, or strided)."""
    if tensor.device.type != "cpu" or tensor.layout != torch.strided or not tensor.is_contiguous():
        return None
    if tensor.is_conj() or tensor.is_neg():  # memory does not hold the tensor's values
        return None
    plain = tensor.detach()
    data = bytes_of(torch.view_as_real(plain) if plain.is_complex() else plain)
    if len(data) <= WHOLE:
        return xxhash.xxh3_64_intdigest(data)
    state = xxhash.xxh3_64()
    for piece in range(PIECES):
        start = (len(data) - PIECE) * piece // (PIECES - 1)
        state.update(data[start : start + PIECE])
    return state.intdigest()


def overlaps(tensor: torch.Tensor, others: Sequence[torch.Tensor]) -> bool:
    """Return whether ``tensor`` and one of ``others`` span overlapping memory, from first to last element."""
    low, high = _extent(tensor)
    return any(low < other_high and other_low < high for other_low, other_high in map(_extent, others))


def _extent(tensor: torch.Tensor) -> tuple[int, int]:
    if tensor.layout != torch.strided or tensor.numel() == 0:
        return 0, 0
    reach = sum((size - 1) * stride for size, stride in zip(tensor.shape, tensor.stride(), strict=True))
    return tensor.data_ptr(), tensor.data_ptr() + (reach + 1) * tensor.element_size()
