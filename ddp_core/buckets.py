"""Plans which gradients share a bucket: a pure function of their sizes, without tensors or a process group.

Special here: the plan depends only on properties that are equal on every rank (names, sizes, dtypes, registration
order), never on the order in which gradients become ready on this rank. A bucketed strategy that follows that order
adds up different parameters on different ranks.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass

MB = 1024 * 1024
WORTH_A_MESSAGE = 8  # a bucket below 1/8 of its cap is not closed: a bias alone would cost a whole latency


@dataclass(frozen=True)
class Slot:
    """A parameter's place in its bucket's flat buffer; ``offset`` and ``numel`` count elements."""

    index: int  # the parameter's place in registration order
    name: str
    offset: int
    numel: int


@dataclass(frozen=True)
class BucketPlan:
    """One bucket: gradients of one kind (dtype and device) that share a flat buffer and one collective."""

    kind: Hashable
    slots: tuple[Slot, ...]

    @property
    def numel(self) -> int:
        return sum(slot.numel for slot in self.slots)


@dataclass(frozen=True)
class Gradient:
    """The properties of a parameter that the plan uses. ``num_bytes`` is the size of its gradient."""

    name: str
    numel: int
    num_bytes: int
    kind: Hashable


def plan_buckets(
    gradients: Sequence[Gradient], *, cap_bytes: int, first_cap_bytes: int, order: Sequence[int] | None = None
) -> list[BucketPlan]:
    """Group gradients into buckets of at most ``cap_bytes`` each; a gradient larger than the cap makes a larger bucket.

    The default order is reverse registration order, which approximates the order in which backward finishes gradients,
    so early buckets can be sent early (Li et al., "PyTorch Distributed", VLDB 2020, section 3.2.3). ``order`` gives the
    indices of ``gradients`` in an observed order; missing indices follow. The first bucket has its own, smaller cap, so
    that communication starts soon. A bucket that holds less than an eighth of its cap takes the next gradient too,
    even beyond the cap: a small bucket (the bias before its weight) is not worth a message.

    The buckets are in launch order, by their last gradient: a bucket can be sent when that gradient is ready.

    Raises ValueError if a cap is not positive.
    """
    if cap_bytes <= 0 or first_cap_bytes <= 0:
        raise ValueError(f"bucket caps must be positive, got {cap_bytes} and {first_cap_bytes} bytes")
    open_bytes: dict[Hashable, int] = {}
    open_bucket: dict[Hashable, int] = {}
    members: list[list[int]] = []
    in_order = list(dict.fromkeys([*(order or ()), *reversed(range(len(gradients)))]))
    for index in in_order:
        gradient = gradients[index]
        bucket = open_bucket.get(gradient.kind)
        cap = first_cap_bytes if bucket == 0 else cap_bytes
        held = open_bytes.get(gradient.kind, 0)
        if bucket is None or (held + gradient.num_bytes > cap and held * WORTH_A_MESSAGE >= cap):
            bucket = open_bucket[gradient.kind] = len(members)
            open_bytes[gradient.kind] = 0
            members.append([])
        members[bucket].append(index)
        open_bytes[gradient.kind] += gradient.num_bytes
    place = {index: number for number, index in enumerate(in_order)}
    members.sort(key=lambda indices: place[indices[-1]])
    return [_lay_out(indices, gradients) for indices in members]


def _lay_out(indices: list[int], gradients: Sequence[Gradient]) -> BucketPlan:
    slots, offset = [], 0
    for index in indices:
        gradient = gradients[index]
        slots.append(Slot(index, gradient.name, offset, gradient.numel))
        offset += gradient.numel
    return BucketPlan(gradients[indices[0]].kind, tuple(slots))
