"""From shards to whole tensors: what every rank holds together, as a check wants to see it.

Special here: a rank writes down its own shard and no rank gathers, so the recording of a sharded strategy holds no
collective that the strategy did not make. Each rank's whole is put together from its *own* shard and, for the rest, the
lowest rank that has it: where shards are replicated (HSDP) a replica that drifted still shows.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

import numpy as np
import xxhash

Key = tuple[str, int, str]


class HasTensors(Protocol):
    tensors: dict[Key, Any]


def assemble(ranks: Sequence[HasTensors]) -> None:
    """Replace the shards in ``ranks`` by whole tensors, in place. Where a part is missing, nothing is left."""
    keys = {key for rank in ranks for key, tensor in rank.tensors.items() if tensor.shard is not None}
    for key in keys:
        held = {place: rank.tensors[key] for place, rank in enumerate(ranks) if key in rank.tensors}
        for place, rank in enumerate(ranks):
            if place in held:
                whole = _whole(held, place) if all(t.shard is not None for t in held.values()) else None
                if whole is None:
                    del rank.tensors[key]
                else:
                    rank.tensors[key] = whole


def _whole(held: dict[int, Any], place: int) -> Any | None:
    own = held[place]
    parts = {tuple(t.shard["offset"]): t for _, t in sorted(held.items(), reverse=True) if _numel(t.shape)}
    if _numel(own.shape):
        parts[tuple(own.shard["offset"])] = own
    shape = tuple(own.shard["shape"])
    if sum(_numel(t.shape) for t in parts.values()) != _numel(shape):
        return None
    digest = xxhash.xxh3_128_hexdigest("".join(f"{at}{t.digest}" for at, t in sorted(parts.items())).encode())
    values = None
    if all(t.values is not None for t in parts.values()):
        values = np.empty(shape, next(iter(parts.values())).values.dtype if parts else np.float64)
        for offset, t in parts.items():
            values[tuple(slice(o, o + n) for o, n in zip(offset, t.shape, strict=True))] = t.values
    return type(own)(own.what, own.step, own.name, own.dtype, shape, digest, values, own.shard)


def _numel(shape: Sequence[int]) -> int:
    return int(np.prod(shape, dtype=np.int64))
