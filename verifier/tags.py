"""Tagged gradients: every gradient element is its own name, so a payload can be read like a packing list.

Each trainable element gets a code, consecutive over the model in registration order and inside one octave
[B, 2B). On rank r of W its gradient is replaced by ``code * W * factor(r)``. Then

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
from itertools import pairwise

import numpy as np


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


class TagBook:
    """The codes of a model's parameters, given as (name, number of elements) in registration order."""

    def __init__(self, sizes: Sequence[tuple[str, int]], world_size: int) -> None:
        self.world_size = world_size
        self.names = [name for name, _ in sizes]
        self.ends = np.cumsum([numel for _, numel in sizes])
        self.starts = self.ends - np.array([numel for _, numel in sizes])
        self.num_codes = int(self.ends[-1]) if len(sizes) else 0
        self.base = 1 << max(self.num_codes, 1).bit_length()

    def codes(self, name: str) -> np.ndarray:
        """The codes of ``name``'s elements in row-major order, int64."""
        place = self.names.index(name)
        return np.arange(self.starts[place], self.ends[place], dtype=np.int64) + self.base

    def gradient(self, name: str, rank: int) -> np.ndarray:
        """What rank ``rank`` finds as the gradient of ``name``, flat, float64."""
        return self.codes(name).astype(np.float64) * self.world_size * factor(rank)

    def mean(self, name: str) -> np.ndarray:
        """The mean over ranks of ``gradient``, flat, float64."""
        return self.codes(name).astype(np.float64) * sum(factor(r) for r in range(self.world_size))

    def decode(self, payload: np.ndarray, rank: int) -> list[Segment] | None:
        """Which elements ``payload`` holds, or None if it holds something else.

        Zeros are left out: a parameter that this rank did not use, or padding.
        """
        flat = payload.reshape(-1)
        if flat.dtype.kind != "f" or not np.isfinite(flat).all() or not flat.any():
            return None
        for scale in (self.world_size * factor(rank), factor(rank)):
            codes = flat.astype(np.float64) / scale - self.base
            places = np.rint(codes).astype(np.int64)
            real = flat != 0
            if (places[real] == codes[real]).all() and ((places[real] >= 0) & (places[real] < self.num_codes)).all():
                return self._segments(places, real)
        return None

    def _segments(self, places: np.ndarray, real: np.ndarray) -> list[Segment]:
        """Cut ``places`` (codes from 0) into runs that are consecutive, non-zero and of one parameter."""
        owner = np.searchsorted(self.ends, places, side="right")
        breaks = (np.diff(places) != 1) | (np.diff(owner) != 0) | (real[1:] != real[:-1])
        edges = [0, *(np.flatnonzero(breaks) + 1).tolist(), len(places)]
        found = []
        for begin, end in pairwise(edges):
            if real[begin]:
                which = int(owner[begin])
                start = int(places[begin] - self.starts[which])
                found.append(Segment(self.names[which], start, start + end - begin, begin))
        return found
