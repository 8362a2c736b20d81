"""Parses models and sizes that a person types, and formats sizes.

``30,20,12x(0.9,0.6,0.4,0.3)`` is a stack of layers in millions of parameters, first layer first; ``4M`` and ``25MB``
are bucket sizes, in millions of parameters and in MB of 2**20 bytes.
"""

from __future__ import annotations

import re

from ddp_core.buckets import MB
from ddp_core.cost import Layer
from verifier.errors import UsageError

PUBLISHED_STACK = "30,20,12x(0.9,0.6,0.4,0.3)"
PUBLISHED_BACKWARD_MS = 91.68
PUBLISHED_BUCKETS = ("0.3M", "0.6M", "1.5M", "4M", "10M", "25M", "50M", "76.4M")
MILLION = 1_000_000
MOST_LAYERS = 100_000


def parse_stack(text: str) -> list[float]:
    """Layers in millions of parameters. Raises UsageError for text that is not a stack."""
    sizes: list[float] = []
    for part in re.split(r",(?![^(]*\))", text.replace(" ", "")):
        found = re.fullmatch(r"(?:(\d+)x)?(?:\(([^()]+)\)|([^()]+))", part)
        try:
            inner = [float(size) for size in (found.group(2) or found.group(3)).split(",")] if found else []
        except ValueError:
            inner = []
        times = int(found.group(1) or 1) if found else 0
        if not inner or not all(0 < size < 1e9 for size in inner) or not 0 < times * len(inner) <= MOST_LAYERS:
            raise UsageError(
                f"'{part}' in '{text}' is no layer. A stack is sizes in millions of parameters, first layer first, "
                f"for example {PUBLISHED_STACK} or 32x7.1."
            )
        sizes += inner * times
    return sizes


def stack(text: str, backward_ms: float, bytes_each: int) -> list[Layer]:
    """The layers of ``text``; each takes a share of ``backward_ms`` in proportion to its parameters."""
    if not backward_ms > 0:
        raise UsageError(f"backward must take longer than 0 ms, got {backward_ms:g}.")
    sizes = parse_stack(text)
    per_million_s = backward_ms / 1e3 / sum(sizes)
    return [Layer(max(round(m * MILLION * bytes_each), 1), m * per_million_s) for m in sizes]


def parse_size(text: str, bytes_each: int) -> float:
    """Bytes of ``25MB`` or ``25`` (MB), ``64KB``, ``2GB``, or ``4M`` (millions of gradients of ``bytes_each``)."""
    units = {"": MB, "MB": MB, "KB": 1024, "GB": 1024 * MB, "M": MILLION * bytes_each}
    found = re.fullmatch(r"([\d.]+)(|KB|MB|GB|M)", text.strip())
    try:
        size = float(found.group(1)) * units[found.group(2)] if found else 0.0
    except ValueError:
        size = 0.0
    if not size > 0:
        raise UsageError(f"'{text}' is no bucket size. Write 25MB, or 4M for four million parameters.")
    return size


def told(num_bytes: float) -> str:
    """``num_bytes`` in decimal units, as networks and the documents count bytes."""
    for limit, unit in ((1e12, "TB"), (1e9, "GB"), (1e6, "MB"), (1e3, "KB")):
        if num_bytes >= limit:
            return f"{num_bytes / limit:.3g} {unit}"
    return f"{num_bytes:.0f} B"
