"""The memory limit of data parallelism: state per rank, how far sharding reduces it, and the communication cost. Pure.

Every rank of DDP holds the whole state, so more ranks do not help a model that does not fit. ZeRO (Rajbhandari et al.,
arXiv:1910.02054) shards optimizer state, then gradients, then weights; FSDP (Zhao et al., arXiv:2304.11277) is its last
stage; HSDP shards inside groups and replicates between them.

Special here: activations, buffers and fragmentation are *not* counted. The counted state is the part that sharding can
reduce, and a lower bound on what a rank needs.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

Scheme = Literal["ddp", "zero1", "zero2", "zero3", "fsdp", "hsdp"]
SCHEMES: tuple[Scheme, ...] = ("ddp", "zero1", "zero2", "zero3", "fsdp", "hsdp")


@dataclass(frozen=True)
class Precision:
    """Bytes per parameter of weights, gradients, and the optimizer's state (master weights included)."""

    weights: int
    gradients: int
    optimizer: int

    @property
    def total(self) -> int:
        return self.weights + self.gradients + self.optimizer


#: bfloat16 weights and gradients; float32 master weights, first and second moments: 16 bytes (ZeRO, section 3.1).
MIXED_ADAM = Precision(2, 2, 12)
#: All in float32, two moments: 16 bytes as well.
FLOAT32_ADAM = Precision(4, 4, 8)
#: All in float32, one momentum.
FLOAT32_SGD = Precision(4, 4, 4)
PRECISIONS = {"mixed-adam": MIXED_ADAM, "float32-adam": FLOAT32_ADAM, "float32-sgd": FLOAT32_SGD}


@dataclass(frozen=True)
class State:
    """Bytes that one rank holds between steps, and bytes that it sends in one step."""

    scheme: Scheme
    num_ranks: int
    weights_bytes: float
    gradients_bytes: float
    optimizer_bytes: float
    sent_bytes: float

    @property
    def total_bytes(self) -> float:
        return self.weights_bytes + self.gradients_bytes + self.optimizer_bytes


def state(
    num_parameters: float,
    num_ranks: int = 1,
    scheme: Scheme = "ddp",
    *,
    precision: Precision = MIXED_ADAM,
    group_size: int | None = None,
) -> State:
    """Bytes that a rank holds, and sends in one step.

    Bytes sent by a ring, for P parameters of w bytes (weights) and g bytes (gradients), with f = (N-1)/N: DDP 2fPg (an
    all-reduce); ZeRO 1 and 2 fP(g+w) (reduce-scatter, all-gather), the same; ZeRO 3 and FSDP fP(g+2w), half as much
    again, because weights are gathered twice. HSDP sends as FSDP inside groups of ``group_size``, and an all-reduce of
    its share of gradients between groups.

    Raises ValueError for counts that are not positive, or ``hsdp`` without a ``group_size`` that divides the ranks.
    """
    if num_parameters <= 0 or num_ranks < 1:
        raise ValueError(f"parameters and ranks must be positive, got {num_parameters} and {num_ranks}")
    if scheme not in SCHEMES:
        raise ValueError(f"there is no scheme {scheme!r}: choose one of {', '.join(SCHEMES)}")
    shards = _num_shards(scheme, num_ranks, group_size)
    inside, between = (shards - 1) / shards, 1 - shards / num_ranks  # (N-1)/N in a group, and over groups
    over = {
        "ddp": (1, 1, 1),
        "zero1": (1, 1, shards),
        "zero2": (1, shards, shards),
    }.get(scheme, (shards, shards, shards))
    w, g = precision.weights, precision.gradients
    if scheme == "ddp":
        sent = 2 * (1 - 1 / num_ranks) * g
    elif scheme in ("zero1", "zero2"):
        sent = inside * (g + w)
    else:
        sent = inside * (g + 2 * w) + 2 * between * g / shards
    return State(
        scheme,
        num_ranks,
        num_parameters * w / over[0],
        num_parameters * g / over[1],
        num_parameters * precision.optimizer / over[2],
        num_parameters * sent,
    )


def _num_shards(scheme: Scheme, num_ranks: int, group_size: int | None) -> int:
    if scheme != "hsdp":
        return num_ranks
    if group_size is None or group_size < 1 or num_ranks % group_size:
        raise ValueError(
            f"hsdp shards inside groups that divide the {num_ranks} ranks, got group_size={group_size}: "
            "give the ranks of a node, for example 8"
        )
    return group_size


@dataclass(frozen=True)
class Remedy:
    """A scheme that fits, and its communication relative to DDP's on the same ranks (1: equal)."""

    state: State
    communication_ratio: float


def what_helps(
    num_parameters: float,
    num_ranks: int,
    memory_bytes: float,
    *,
    precision: Precision = MIXED_ADAM,
    group_size: int | None = None,
    schemes: Iterable[Scheme] = SCHEMES,
) -> list[Remedy]:
    """The schemes whose state fits into ``memory_bytes`` of a rank, cheapest communication first. Empty: none does.

    ``hsdp`` is considered where ``group_size`` divides the ranks. State that fits may still leave no room for
    activations, which are not counted.
    """
    replicated = state(num_parameters, num_ranks, precision=precision).sent_bytes
    found = []
    for scheme in schemes:
        if scheme == "hsdp" and (group_size is None or num_ranks % group_size):
            continue
        held = state(num_parameters, num_ranks, scheme, precision=precision, group_size=group_size)
        if held.total_bytes <= memory_bytes:
            found.append(Remedy(held, held.sent_bytes / replicated if replicated else 1.0))
    return sorted(found, key=lambda remedy: remedy.communication_ratio)


def largest_model(memory_bytes: float, num_ranks: int, scheme: Scheme, *, precision: Precision = MIXED_ADAM) -> float:
    """The number of parameters whose state just fills ``memory_bytes`` on each of ``num_ranks``."""
    group_size = num_ranks if scheme == "hsdp" else None
    return memory_bytes / state(1, num_ranks, scheme, precision=precision, group_size=group_size).total_bytes
