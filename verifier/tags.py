"""Tagged gradients: every gradient element is its own name, so a payload can be read like a packing list.

Each trainable element gets a code, consecutive over the model in registration order and inside one octave
[B, 2B). On rank r of W its gradient is replaced by ``code * W * factor(r)``, for large models times a power of two
that keeps it within reach of float16, which is nothing to exact numbers. Then

* the mean over ranks is ``code * sum(factors)``, exactly, whatever order the sum was taken in and whether the
  division by W came before or after it;
* a payload divided by ``W * factor(r)`` (or by ``factor(r)``, if it was divided by W first) gives whole codes;
  no other scale does, because codes of one octave cannot be double or half of one another.

Special here: factors differ between ranks, because equal gradients on all ranks hide nearly every mistake.
Pure functions on numpy: used where gradients are made and again where recordings are judged.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

BLOCK = 2**14  # elements
MOST_SEGMENTS = 100_000
LARGEST_BASE = 256.0  # where codes of larger models begin: what is declared as float16 must not overflow by our doing


def factor(rank: int) -> int:
    return 1 + rank % 3


@dataclass(frozen=True)
class Segment:
    """A run of consecutive elements of one parameter: ``name[start:stop]`` at ``offset`` of a payload."""

    name: str
    start: int
    stop: int
    offset: int

    def describe(self) -> str:
        return f"{self.name}[{self.start}:{self.stop}]"


def first_clash(mine: list[Segment], theirs: list[Segment]) -> tuple[Segment, Segment] | None:
    """The first two segments that lie on the same offsets and are not the same elements.

    Both lists are in order of offset: what ends first is left behind, so that long lists take no longer than they are.
    """
    here_at = there_at = 0
    while here_at < len(mine) and there_at < len(theirs):
        here, there = mine[here_at], theirs[there_at]
        ends = here.offset + here.stop - here.start, there.offset + there.stop - there.start
        aligned = here.name == there.name and here.start - here.offset == there.start - there.offset
        if max(here.offset, there.offset) < min(ends) and not aligned:
            return here, there
        here_at, there_at = here_at + (ends[0] <= ends[1]), there_at + (ends[1] <= ends[0])
    return None


class TagBook:
    """The codes of a model's parameters, given as (name, number of elements) in registration order."""

    def __init__(self, sizes: Sequence[tuple[str, int]], world_size: int) -> None:
        self.world_size = world_size
        self.names = [name for name, _ in sizes]
        self.ends = np.cumsum([numel for _, numel in sizes])
        self.starts = self.ends - np.array([numel for _, numel in sizes])
        self.num_codes = int(self.ends[-1]) if len(sizes) else 0
        self.base = 1 << max(self.num_codes, 1).bit_length()
        self.unit = min(1.0, LARGEST_BASE / self.base)

    def codes(self, name: str) -> np.ndarray:
        """The codes of ``name``'s elements in row-major order, int64."""
        place = self.names.index(name)
        return np.arange(self.starts[place], self.ends[place], dtype=np.int64) + self.base

    def gradient(self, name: str, rank: int) -> np.ndarray:
        """What rank ``rank`` finds as the gradient of ``name``, flat, float64."""
        return self.codes(name) * (self.unit * self.world_size * factor(rank))

    def mean(self, name: str) -> np.ndarray:
        """The mean over ranks of ``gradient``, flat, float64."""
        return self.codes(name) * (self.unit * sum(factor(r) for r in range(self.world_size)))

    def decode(self, payload: np.ndarray, rank: int) -> list[Segment] | None:
        """Which elements ``payload`` holds, or None if it holds something else, or them in more than 100,000 pieces.

        Zeros are left out: a parameter that this rank did not use, or padding.
        """
        return self._decode(payload, (self.unit * self.world_size * factor(rank), self.unit * factor(rank)))

    def decode_mean(self, gradient: np.ndarray) -> list[Segment] | None:
        """Whose means ``gradient`` holds, element by element in row-major order; None if it holds something else."""
        return self._decode(gradient, (self.unit * sum(factor(r) for r in range(self.world_size)),))

    def _decode(self, payload: np.ndarray, scales: Sequence[float]) -> list[Segment] | None:
        flat = payload.reshape(-1)
        present = flat != 0
        if flat.dtype.kind != "f" or not present.any():
            return None
        one = float(flat[np.argmax(present)])
        for scale in scales:
            if not self.base <= one / scale < self.base + self.num_codes:  # another scale: true of no element, then
                continue
            codes = flat.astype(np.float64)
            codes /= scale
            codes -= self.base
            return self._segments(codes, present)
        return None

    def _segments(self, codes: np.ndarray, present: np.ndarray) -> list[Segment] | None:
        """Cut ``codes`` (from 0) into runs that are consecutive, non-zero and of one parameter; None: they are none.

        Where a run begins with a whole number and goes up by one all of it is whole: only its ends are looked at.
        """
        edges = _edges(codes)
        begins, ends = np.concatenate(([0], edges)), np.concatenate((edges, [len(codes)]))
        absent = ~present[begins]
        if (ends[absent] - begins[absent] > 1).any():
            return None
        begins, ends = begins[~absent], ends[~absent]
        if len(begins) > MOST_SEGMENTS:
            return None
        first, last = codes[begins], codes[ends - 1]
        if not ((first == np.rint(first)) & (first >= 0) & (last < self.num_codes)).all():
            return None
        found = []
        for offset, place, size in zip(begins.tolist(), first.astype(np.int64).tolist(), ends - begins, strict=True):
            found += self._of_one_run(offset, place, place + int(size))
        return found

    def _of_one_run(self, offset: int, place: int, stop: int) -> list[Segment]:
        found = []
        while place < stop:
            which = int(np.searchsorted(self.ends, place, side="right"))
            until, start = min(stop, int(self.ends[which])), int(self.starts[which])
            found.append(Segment(self.names[which], place - start, until - start, offset))
            offset, place = offset + until - place, until
        return found


def _edges(codes: np.ndarray) -> np.ndarray:
    """Where a code is not the one before and 1. A block at a time: what fits into a core's cache takes a third."""
    edges = [np.empty(0, np.int64)]
    for start in range(0, len(codes) - 1, BLOCK):
        with np.errstate(invalid="ignore"):  # infinity less infinity is no step of 1, and that is all it has to be
            steps = np.diff(codes[start : start + BLOCK + 1])
        edges.append(np.flatnonzero(steps != 1) + (start + 1))
    return np.concatenate(edges)
