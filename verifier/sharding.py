"""Puts shards together into whole tensors, as checks need them.

Special here: a rank records its own shard and no rank gathers, so the recording of a sharded strategy holds no
collective that the strategy did not make. Shards that are no DTensors are recognised by their shape alone: if a
strategy declares ``sharded=True`` and a rank holds less of a parameter than the model had, rank r is taken to hold the
r-th part. Each rank's whole tensor is its *own* shard and, for the rest, the shards of the lowest rank that has them,
so a drifted replica shows where shards are replicated (HSDP). Terms of a sum that is still to be made are added up.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Protocol

import numpy as np
import xxhash

from verifier.subgroups import groups

Key = tuple[str, int, str]


class HasTensors(Protocol):
    tensors: dict[Key, Any]


def assemble(ranks: Sequence[HasTensors], *, in_groups: bool = False) -> None:
    """Replace the shards in ``ranks`` by whole tensors, in place. If a part is missing, the shards are removed.

    ``in_groups``: each process group given to the strategy has its own tensors.
    """
    if in_groups:
        for group in groups(len(ranks)):
            assemble([ranks[rank] for rank in group])
        return
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
    held = {at: _added_up(t, list(held.values())) if "adds_up_over" in t.shard else t for at, t in held.items()}
    if any(t is None for t in held.values()):
        return None
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


def _added_up(own: Any, held: list[Any]) -> Any | None:
    """The value of a DTensor with placement ``Partial``: the sum or mean, which its optimizer will make, of all ranks'
    terms of the same part. Replicas of a term count once.
    """
    terms = [term for term in held if term.shard == own.shard]
    if any(term.values is None for term in terms):
        return None
    values = np.sum([term.values for term in terms], axis=0) / own.shard["adds_up_over"][0]
    values = values.astype(own.values.dtype)
    digest = xxhash.xxh3_128_hexdigest(values.tobytes())
    return type(own)(own.what, own.step, own.name, own.dtype, own.shape, digest, values, own.shard)


def assemble_by_hand(
    ranks: Sequence[HasTensors], reference: HasTensors | None, parameters: Sequence[Mapping[str, Any]]
) -> None:
    """Assemble plain tensors in rank order: rows of the whole, or parts of it laid flat and padded at the end.

    ``parameters``: name, shape and stride of each whole parameter. Tensors that fit neither form are left out.
    """
    laid_flat = _assemble_by_shape(ranks, {entry["name"]: entry["shape"] for entry in parameters})
    if reference is not None:
        strides = {entry["name"]: entry.get("stride", ()) for entry in parameters}
        _read_as_in_memory(ranks, reference, sorted(laid_flat), strides)


def _assemble_by_shape(ranks: Sequence[HasTensors], full: Mapping[str, Sequence[int]]) -> list[Key]:
    """Assemble tensors that do not have their shape in ``full``. Return the keys of those laid flat, in any order."""
    keys = {key for rank in ranks for key, t in rank.tensors.items() if t.shard is None and key[2] in full}
    parted = {
        (what, step)
        for what, step, name in keys
        if any(tuple(t.shape) != tuple(full[name]) for t in _held(ranks, (what, step, name)) if t is not None)
    }
    empty = {name: _without_a_part(ranks, name) for name in full}
    laid_flat = []
    for key in keys:
        shape = tuple(full[key[2]])
        held = [t for rank, t in enumerate(_held(ranks, key)) if t is not None or rank not in empty[key[2]]]
        # a part of a single row has the whole's shape: one rank's is padding
        alike = all(t is None or tuple(t.shape) == shape for t in held)
        if alike and not (key[:2] in parted and shape[:1] == (1,)) and len(held) == len(ranks):
            continue
        whole = _laid_end_to_end([t for t in held if t is not None], shape) if None not in held else None
        if whole is not None and all(len(t.shape) == 1 for t in held if t is not None):
            laid_flat.append(key)
        for rank in ranks:
            if whole is None:
                rank.tensors.pop(key, None)
            else:
                rank.tensors[key] = whole
    return laid_flat


def _read_as_in_memory(
    ranks: Sequence[HasTensors], reference: HasTensors, laid_flat: Sequence[Key], strides: Mapping[str, Sequence[int]]
) -> None:
    """Reorder flat parts of parameters that are not row-major, if they are in memory order, as torch's FSDP lays them.

    One order is chosen for all of a parameter's weights and gradients: the one in which they are nearer to the single
    process's.
    """
    for name, stride in strides.items():
        order = sorted(range(len(stride)), key=lambda d: -stride[d])  # stable: row-major stays row-major
        keys = [key for key in laid_flat if key[2] == name]
        if order == list(range(len(stride))) or not keys:
            continue
        pairs = [(ranks[0].tensors[key].values, _values(reference, key)) for key in keys]
        known = [(values, expected) for values, expected in pairs if values is not None and expected is not None]
        by_row = sum(float(np.abs(values - expected).sum()) for values, expected in known)
        in_memory = sum(float(np.abs(_permuted(values, order) - expected).sum()) for values, expected in known)
        if in_memory < by_row:
            for key in keys:
                whole = ranks[0].tensors[key]
                if whole.values is not None:
                    whole = replace(whole, contents=_permuted(whole.values, order))
                for rank in ranks:
                    rank.tensors[key] = whole


def _values(rank: HasTensors, key: Key) -> np.ndarray | None:
    tensor = rank.tensors.get(key)
    return None if tensor is None else tensor.values


def _permuted(values: np.ndarray, order: Sequence[int]) -> np.ndarray:
    """``values``, whose elements are in memory order with dimensions in ``order``, as a row-major array."""
    in_memory = values.reshape([values.shape[d] for d in order])
    return np.ascontiguousarray(in_memory.transpose(np.argsort(order)))


def _held(ranks: Sequence[HasTensors], key: Key) -> list[Any | None]:
    return [rank.tensors.get(key) for rank in ranks]


def _without_a_part(ranks: Sequence[HasTensors], name: str) -> set[int]:
    """The ranks whose part of ``name`` is empty: they may have no gradient of it."""
    at_start = enumerate(_held(ranks, ("weight", -1, name)))
    return {rank for rank, t in at_start if t is not None and not _numel(t.shape) and t.shard is None}


def _laid_end_to_end(parts: list[Any], shape: tuple[int, ...]) -> Any | None:
    first, numel = parts[0], _numel(shape)
    rows = shape and all(t.shape[1:] == shape[1:] for t in parts) and sum(t.shape[0] for t in parts) >= shape[0]
    flat = all(len(t.shape) < 2 for t in parts) and sum(_numel(t.shape) for t in parts) >= numel
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
