"""From shards to whole tensors: what every rank holds together, as a check wants to see it.

Special here: a rank writes down its own shard and no rank gathers, so the recording of a sharded strategy holds no
collective that the strategy did not make. Shards that are no DTensors are known by their shape alone: a strategy that
declares ``sharded=True`` and holds less of a parameter than the model had is taken to hold rank r's r-th part. Each
rank's whole is put together from its *own* shard and, for the rest, the lowest rank that has it: where shards are
replicated (HSDP) a replica that drifted still shows.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
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


def assemble_by_hand(ranks: Sequence[HasTensors], full: Mapping[str, Sequence[int]]) -> None:
    """The same for plain tensors: rows of the whole, or parts of it laid flat and padded at the end, in order of rank.

    ``full``: the shapes of the whole parameters, by name. What fits neither is left out.
    """
    keys = {key for rank in ranks for key, t in rank.tensors.items() if t.shard is None and key[2] in full}
    parted = {
        (what, step)
        for what, step, name in keys
        if any(tuple(t.shape) != tuple(full[name]) for t in _held(ranks, (what, step, name)) if t is not None)
    }
    for key in keys:
        held, shape = _held(ranks, key), tuple(full[key[2]])
        # a part of a single row is as long as the whole: one rank's is padding
        alike = all(t is None or tuple(t.shape) == shape for t in held)
        if alike and not (key[:2] in parted and shape[:1] == (1,)):
            continue
        whole = _laid_end_to_end([t for t in held if t is not None], shape) if None not in held else None
        for rank in ranks:
            if whole is None:
                rank.tensors.pop(key, None)
            else:
                rank.tensors[key] = whole


def _held(ranks: Sequence[HasTensors], key: Key) -> list[Any | None]:
    return [rank.tensors.get(key) for rank in ranks]


def _laid_end_to_end(parts: list[Any], shape: tuple[int, ...]) -> Any | None:
    first, numel = parts[0], _numel(shape)
    rows = shape and all(t.shape[1:] == shape[1:] for t in parts) and sum(t.shape[0] for t in parts) >= shape[0]
    flat = all(len(t.shape) == 1 for t in parts) and sum(_numel(t.shape) for t in parts) >= numel
    if not (rows or flat):
        return None
    digest = xxhash.xxh3_128_hexdigest("".join(t.digest for t in parts).encode())
    values = None
    if all(t.values is not None for t in parts):
        values = np.concatenate([t.values.reshape(-1) for t in parts])[:numel].reshape(shape)
    nowhere = {"shape": list(shape), "offset": [0] * len(shape)}
    return type(first)(first.what, first.step, first.name, first.dtype, shape, digest, values, nowhere)


def _numel(shape: Sequence[int]) -> int:
    return int(np.prod(shape, dtype=np.int64))
