"""The marker that fills a tensor while its collective is in flight, as judging knows it again.

Special here: the observer writes it with torch (``verifier.observe.poison``), judging imports no torch, so both know
the bits: a test compares them.
"""

from __future__ import annotations

import numpy as np

# The payloads that verifier.observe.observer writes into tensors in flight (kept here too: judging imports no torch).
POISON = {"float32": (np.uint32, 0x7FC0DEAD), "float64": (np.uint64, 0x7FF80000DEADDEAD)}
QUIET = {np.uint32: 1 << 22, np.uint64: 1 << 51}  # the bit that arithmetic sets in it and a plain copy does not
_BY_DTYPE = {np.dtype(name): bits for name, bits in POISON.items()}


def holds_poison(values: np.ndarray) -> bool:
    """Is any element of ``values`` the observer's marker, copied or calculated with?"""
    kind = _BY_DTYPE.get(values.dtype)
    if kind is None:
        return False
    with np.errstate(invalid="ignore", over="ignore"):
        if not np.isnan(values.sum()):  # one that is not a number makes the sum none: a quarter of the time
            return False
    bits = np.ascontiguousarray(values).view(kind[0])
    return bool(((bits | kind[0](QUIET[kind[0]])) == kind[1]).any())
