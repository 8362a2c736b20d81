"""Who sends how much to whom, in the operators where members of a group may bring different amounts.

Special here: in these, sizes need not be equal on all ranks; what one member sends to another must be what that one
expects. Each function gets an operator's arguments, this rank's place in the group and the group's size. It returns the
number of elements for each member, and from each; None where the arguments are invalid, which the backend reports.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

Amounts = list[int] | None
Arguments = Mapping[str, Any]


def _numels(tensors: Sequence[Any], size: int) -> Amounts:
    return [t.numel() for t in tensors] if len(tensors) == size else None


def _first(rows: Sequence[Sequence[Any]]) -> Sequence[Any]:
    return rows[0] if rows else []


def _to_one(total: int, rank: int, size: int) -> list[int]:
    return [total if member == rank else 0 for member in range(size)]


def _total(tensors: Sequence[Any]) -> int:
    return sum(t.numel() for t in tensors)


def _allgather(given: Arguments, rank: int, size: int) -> tuple[Amounts, Amounts]:
    return [_total(given["input_tensors"])] * size, _numels(_first(given["output_tensors"]), size)


def _reduce_scatter(given: Arguments, rank: int, size: int) -> tuple[Amounts, Amounts]:
    return _numels(_first(given["input_tensors"]), size), [_total(given["output_tensors"])] * size


def _alltoall(given: Arguments, rank: int, size: int) -> tuple[Amounts, Amounts]:
    return _numels(given["input_tensors"], size), _numels(given["output_tensors"], size)


def _alltoall_base(given: Arguments, rank: int, size: int) -> tuple[Amounts, Amounts]:
    return (
        _split(given["input"], given["input_split_sizes"], size),
        _split(given["output"], given["output_split_sizes"], size),
    )


def _split(tensor: Any, sizes: Sequence[int], size: int) -> Amounts:
    if not sizes:
        return [tensor.numel() // size] * size
    rows = tensor.shape[0] if tensor.dim() else 0
    row = tensor.numel() // rows if rows else 0
    return [row * count for count in sizes] if len(sizes) == size else None


def _gather(given: Arguments, rank: int, size: int) -> tuple[Amounts, Amounts]:
    sends = _to_one(_total(given["input_tensors"]), given["root_rank"], size)
    receives = _numels(_first(given["output_tensors"]), size) if rank == given["root_rank"] else [0] * size
    return sends, receives


def _scatter(given: Arguments, rank: int, size: int) -> tuple[Amounts, Amounts]:
    receives = _to_one(_total(given["output_tensors"]), given["root_rank"], size)
    sends = _numels(_first(given["input_tensors"]), size) if rank == given["root_rank"] else [0] * size
    return sends, receives


EXCHANGES: dict[str, Callable[[Arguments, int, int], tuple[Amounts, Amounts]]] = {
    "allgather_": _allgather,
    "reduce_scatter_": _reduce_scatter,
    "alltoall_": _alltoall,
    "alltoall_base_": _alltoall_base,
    "gather_": _gather,
    "scatter_": _scatter,
}
