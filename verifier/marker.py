"""The marker that fills a tensor while its collective is in flight, as judging knows it again.

Special here: the observer writes it with torch (``verifier.observe.poison``), judging imports no torch, so both know
the bits: a test compares them.
"""

from __future__ import annotations

import numpy as np

# What verifier.observe.poison leaves in a tensor in flight, as arithmetic makes it quiet (judging imports no torch).
# bfloat16 is recorded as the upper half of a float32; arithmetic on a marker of 16 bits may leave a NaN of no payload.
POISON = {
    "float16": (np.uint16, 0x7EAD),
    "bfloat16": (np.uint32, 0x7FDE0000),
    "float32": (np.uint32, 0x7FC0DEAD),
    "float64": (np.uint64, 0x7FF80000DEADDEAD),
}
QUIET = {np.uint16: 1 << 9, np.uint32: 1 << 22, np.uint64: 1 << 51}  # set by arithmetic, and not by a plain copy
_MARKS = {
    np.dtype("float16"): [POISON["float16"]],
    np.dtype("float32"): [POISON["float32"], POISON["bfloat16"]],
    np.dtype("float64"): [POISON["float64"]],
}


def holds_poison(values: np.ndarray) -> bool:
    """Is any element of ``values`` the observer's marker, copied or calculated with? Of complex ones, either part."""
    if values.dtype.kind == "c":
        values = np.ascontiguousarray(values).view(values.real.dtype)
    marks = _MARKS.get(values.dtype)
    if marks is None:
        return False
    with np.errstate(invalid="ignore", over="ignore"):
        if not np.isnan(values.sum()):  # one that is not a number makes the sum none: a quarter of the time
            return False
    values = np.ascontiguousarray(values)
    return any(bool(((values.view(kind) | kind(QUIET[kind])) == bits).any()) for kind, bits in marks)
