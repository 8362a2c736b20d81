"""Recognises the marker that fills a tensor while its collective is in flight.

Special here: the observer writes it with torch (``verifier.observe.poison``), and judging imports no torch. So both
define the bits, and a test compares them.
"""

from __future__ import annotations

import numpy as np

# The marker of verifier.observe.poison, as a quiet NaN, into which arithmetic turns it.
# bfloat16 is recorded as the upper half of a float32. Arithmetic on a 16-bit marker may leave a NaN without a payload.
POISON = {
    "float16": (np.uint16, 0x7EAD),
    "bfloat16": (np.uint32, 0x7FDE0000),
    "float32": (np.uint32, 0x7FC0DEAD),
    "float64": (np.uint64, 0x7FF80000DEADDEAD),
}
QUIET = {np.uint16: 1 << 9, np.uint32: 1 << 22, np.uint64: 1 << 51}  # set by arithmetic, but not by a plain copy
INTEGERS = {"int32": str(2**31 - 1), "int64": str(2**63 - 1)}  # as an error names them; a narrower one may be a number
_MARKS = {
    np.dtype("float16"): [POISON["float16"]],
    np.dtype("float32"): [POISON["float32"], POISON["bfloat16"]],
    np.dtype("float64"): [POISON["float64"]],
}


def holds_poison(values: np.ndarray) -> bool:
    """Return whether any element (or either part of a complex one) is the marker, copied or after arithmetic."""
    if values.dtype.kind == "c":
        values = np.ascontiguousarray(values).view(values.real.dtype)
    marks = _MARKS.get(values.dtype)
    if marks is None:
        return False
    with np.errstate(invalid="ignore", over="ignore"):
        if not np.isnan(values.sum()):  # any NaN makes the sum NaN; this takes a quarter of the time
            return False
    values = np.ascontiguousarray(values)
    return any(bool(((values.view(kind) | kind(QUIET[kind])) == bits).any()) for kind, bits in marks)
