"""Tagged gradients: every gradient element encodes its own name, so a payload can be read like a packing list.

Each trainable element gets a code, consecutive over the model in registration order and inside one octave [B, 2B).
On rank r of W its gradient is replaced by ``code * W * factor(r)``. For large models this is multiplied by a power of
two that keeps it in the range of float16 and is exact. Then

* the mean over ranks is exactly ``code * sum(factors)``, in any order of summation, whether the division by W came
  before or after the sum;
* a payload divided by ``W * factor(r)`` (or by ``factor(r)``, if it was divided by W first) gives whole codes. No
  other scale does, because codes of one octave cannot be double or half of one another.

Special here: factors differ between ranks, because equal gradients on all ranks hide nearly every mistake.
Pure functions on numpy, used both where gradients are made and where recordings are judged.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

BLOCK = 2**14  # elements
MOST_SEGMENTS = 100_000
LARGEST_BASE = 256.0  # where codes of larger models begin: tags must not overflow a declared float16 wire


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
    """The first two segments that overlap in their offsets and hold different elements; None if there are none.

    Both lists are in order of offset. The segment that ends first is passed, so the time is linear in their length.
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
    """The codes of a model's parameters, which are given as (name, number of elements) in registration order."""

    def __init__(self, sizes: Sequence[tuple[str, int]], world_size: int) -> None:
        self.world_size = world_size
        self.names = [name for name, _ in sizes]
        self.ends = np.cumsum([numel for _, numel in sizes])
        self.starts = self.ends - np.array([numel for _, numel in sizes])
        self.num_codes = int(self.ends[-1]) if len(sizes) else 0
        self.base = 1 << max(self.num_codes, 1).bit_length()
        self.unit = min(1.0, LARGEST_BASE / self.base)

    def gradient(self, name: str, rank: int) -> np.ndarray:
        """The tagged gradient of ``name`` on rank ``rank``, flat, float64."""
        return self._scaled(name, self.unit * self.world_size * factor(rank))

    def mean(self, name: str) -> np.ndarray:
        """The mean over ranks of ``gradient``, flat, float64."""
        return self._scaled(name, self.unit * sum(factor(r) for r in range(self.world_size)))

    def _scaled(self, name: str, scale: float) -> np.ndarray:
        place = self.names.index(name)
        codes = np.arange(self.base + self.starts[place], self.base + self.ends[place], dtype=np.float64)
        codes *= scale
        return codes

    def decode(self, payload: np.ndarray, rank: int) -> list[Segment] | None:
        """The elements that ``payload`` holds; None if it holds something else, or more than 100,000 pieces.

        Zeros are left out: they are padding, or a parameter that this rank did not use.
        """
        return self._decode(payload, (self.unit * self.world_size * factor(rank), self.unit * factor(rank)))

    def decode_mean(self, gradient: np.ndarray) -> list[Segment] | None:
        """The elements whose means ``gradient`` holds, in row-major order; None if it holds something else."""
        return self._decode(gradient, (self.unit * sum(factor(r) for r in range(self.world_size)),))

    def _decode(self, payload: np.ndarray, scales: Sequence[float]) -> list[Segment] | None:
        flat = payload.reshape(-1)
        if flat.dtype.kind != "f" or not len(flat):
            return None
        one = float(flat[0]) or float(flat[np.argmax(flat != 0)])
        for scale in scales:  # one element rules out a scale for all
            if one and self.base <= one / scale < self.base + self.num_codes:
                return self._segments(flat, scale)
        return None

    def _segments(self, flat: np.ndarray, scale: float) -> list[Segment] | None:
        """Cut ``flat`` into consecutive non-zero runs of one parameter each; None if they are no codes times ``scale``.

        A run that begins with a whole number and rises by one is whole throughout, so only its ends are checked.
        """

        def codes(part: np.ndarray) -> np.ndarray:
            return part.astype(np.float64) / scale - self.base

        edges = _edges(flat, codes)
        begins, ends = np.concatenate(([0], edges)), np.concatenate((edges, [len(flat)]))
        absent = flat[begins] == 0
        if (ends[absent] - begins[absent] > 1).any():
            return None
        begins, ends = begins[~absent], ends[~absent]
        if len(begins) > MOST_SEGMENTS:
            return None
        first, last = codes(flat[begins]), codes(flat[ends - 1])
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


def _edges(flat: np.ndarray, codes: Callable[[np.ndarray], np.ndarray]) -> np.ndarray:
    """The places where a code is not the one before plus 1. Blocks that fit into a core's cache take a third."""
    edges = [np.empty(0, np.int64)]
    for start in range(0, len(flat) - 1, BLOCK):
        with np.errstate(invalid="ignore"):  # infinity minus infinity is NaN, which is rightly no step of 1
            steps = np.diff(codes(flat[start : start + BLOCK + 1]))
        edges.append(np.flatnonzero(steps != 1) + (start + 1))
    return np.concatenate(edges)
