"""Which gradients travel together: a pure function from sizes to a plan. No tensors, no process group.

Special here: the plan depends only on what is equal on every rank (names, sizes, dtypes, registration order),
never on the order in which gradients happen to arrive. That is the whole difference between a bucketed
strategy that is right and one that adds up different parameters on different ranks.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass

MB = 1024 * 1024
WORTH_A_MESSAGE = 8  # a bucket under this part of its cap does not leave by itself: a bias would cost a whole latency


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
    """What the plan needs to know of a parameter. ``num_bytes`` is the size of its gradient."""

    name: str
    numel: int
    num_bytes: int
    kind: Hashable


def plan_buckets(
    gradients: Sequence[Gradient], *, cap_bytes: int, first_cap_bytes: int, order: Sequence[int] | None = None
) -> list[BucketPlan]:
    """Group gradients into buckets of ``cap_bytes`` each, at most; a gradient larger than that makes a larger bucket.

    By default in reverse registration order, which approximates the order in which backward finishes them, so early
    buckets can leave early (Li et al., "PyTorch Distributed", VLDB 2020, section 3.2.3). ``order`` gives the indices
    of ``gradients`` in an observed order; those it lacks follow. The first bucket has its own, smaller cap, so that
    the network starts to work soon. A bucket that holds less than an eighth of its cap takes the next gradient along,
    even over the cap: what is small (the bias before its weight) is not worth a message.

    The buckets are in launch order: that of their last gradient, which is when a bucket can leave.

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
