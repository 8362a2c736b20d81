"""A recording: what one scenario's ranks did, as plain data. ``reading`` reads it from disk.

A rank writes two files. ``journal.jsonl`` has one event per line, and each line is written *before* its action is
tried, so that a rank that dies leaves everything up to its last action. ``blobs.bin`` has the bytes of tensors, to
which journal lines point. Reading needs no torch: a recording of eight GPUs can be judged on a laptop. What is judged
is never changed: what judging concludes before any check reads it is ``derived``, in a new ``Recording``.

    scenario.json
    launch.json                      how each process ended, with the stacks of those that hung
    subject/rank0/journal.jsonl      ... one folder per rank
    reference/rank0/journal.jsonl    the single process on the large batch
    alone/                           the strategy on one rank, if its update rule is its own: a recording by itself
    nudged_more/, nudged_less/       the same, if weights differ from it: a little added to gradients, or subtracted
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from verifier.ramps import unpacked
from verifier.refusal import refusal
from verifier.scenario import Scenario

REDUCTIONS = frozenset(
    {"allreduce_", "allreduce_coalesced_", "reduce_"}
    | {"reduce_scatter_", "_reduce_scatter_base_", "reduce_scatter_tensor_coalesced_"}
)
EARLIER = "earlier_gradient"  # the gradient before step(), if the optimizer inside began with another one
Contents = np.ndarray | bytes  # numbers, or their packed ramps
SENDS, RECEIVES = frozenset({"send"}), frozenset({"recv_", "recv_any_source_"})


@dataclass(frozen=True)
class Tensor:
    """What was recorded of one tensor: always its digest (xxh3_128 of its bytes), its contents if kept."""

    what: str  # weight, gradient, local_gradient, buffer
    step: int  # -1: before the first step
    name: str
    dtype: str
    shape: tuple[int, ...]
    digest: str
    contents: Contents | None  # None: not kept
    shard: dict[str, list[int]] | None = None  # a part of a sharded tensor: the whole's shape, this part's offset

    @property
    def values(self) -> np.ndarray | None:
        """The contents as float64-compatible numpy, in ``shape``; None if they were not kept."""
        return opened(self.contents, self.shape)

    @property
    def bits(self) -> tuple[str, str, tuple[int, ...]]:
        """A key that is equal where contents are: a finding for one replica then holds for the other."""
        return (self.digest, self.dtype, self.shape)


@dataclass(frozen=True, eq=False)
class Collective:
    """One collective, or send or receive, as a rank issued it. All ranks are global ones.

    Times are seconds of one clock shared by the ranks of a host. Sizes are of this rank's input, or of its output if it
    has no input. Fields with a default are absent from older recordings.
    """

    seq: int  # the rank's own count, from 0
    op: str
    group: str
    phase: str  # wrap, forward, backward, before_step, step, evaluation, after
    step: int  # -1: during wrap
    dtype: str
    numel: int
    num_bytes: int
    reduce_op: str | None
    root: int | None
    issued: float
    landed: float | None  # None: never waited for, or not before the end
    written_in_flight: bool  # a tensor was written to between issue and wait
    contents: Contents | None
    ranks: tuple[int, ...] | None = None  # the group's members, in its own order
    shapes: tuple[tuple[int, ...], ...] = ()  # of the first tensors
    dense: bool = True  # all tensors are contiguous, none is sparse
    peer: int | None = None  # the rank that it is sent to or received from; for a receive from anyone, the sender
    tag: int | None = None
    sends: tuple[int, ...] | None = None  # elements for each member, where members may bring different amounts
    receives: tuple[int, ...] | None = None
    micro: int | None = None  # the number of the micro-batch; None: outside of micro-batches
    no_sync: bool = False
    how: str | None = None  # waited, polled, future; failed: with an error; refused: by the backend
    wait_began: float | None = None
    written: str | None = None  # the tensor that was written to in flight: input, output

    @property
    def payload(self) -> np.ndarray | None:
        """This rank's input, flat; None if it was not kept."""
        return opened(self.contents, (self.numel,))

    @property
    def refused(self) -> bool:
        return self.how == "refused"

    @property
    def is_a_figure(self) -> bool:
        """Whether it is one number: a loss, a norm, a count; rarely a gradient, whose errors show where it is used."""
        return self.numel == 1

    @property
    def only_sends(self) -> bool:
        return self.op in SENDS

    @property
    def point_to_point(self) -> bool:
        return self.only_sends or self.op in RECEIVES

    @property
    def signature(self) -> tuple[str, str, int | None, str | None, int | None]:
        """The properties that must be equal on all ranks of a group."""
        return (self.op, self.dtype, self.numel if self.sends is None else None, self.reduce_op, self.root)

    def describe(self) -> str:
        reduce_op = f" {self.reduce_op}" if self.reduce_op else ""
        whom = ""
        if self.point_to_point:
            direction = "to" if self.op in SENDS else "from"
            whom = f" {direction} " + ("anyone" if self.peer is None else f"rank {self.peer}")
        elif self.root is not None:
            whom = f" {'from' if self.op in ('broadcast_', 'scatter_') else 'to'} rank {self.root}"
        return f"{self.op.strip('_')}{reduce_op} of {self.numel} {self.dtype}{whom}"


@dataclass
class RankRecording:
    """Everything one rank wrote."""

    rank: int
    tensors: dict[tuple[str, int, str], Tensor] = field(default_factory=dict)
    collectives: list[Collective] = field(default_factory=list)
    notes: dict[str, Any] = field(default_factory=dict)
    losses: dict[int, float] = field(default_factory=dict)
    step_ended: dict[int, float] = field(default_factory=dict)  # seconds of the host's clock, by step
    outcome: dict[str, Any] | None = None  # None: the rank never reported one

    @property
    def completed(self) -> bool:
        return self.outcome is not None and self.outcome["status"] == "completed"

    def tensor(self, what: str, step: int, name: str) -> Tensor | None:
        return self.tensors.get((what, step, name))

    def place_in_step(self, collective: Collective) -> int:
        """How many collectives this rank issued before ``collective`` in the same step."""
        return sum(c.step == collective.step and c.seq < collective.seq for c in self.collectives)

    def named(self, what: str, step: int) -> dict[str, Tensor]:
        return {name: t for (w, s, name), t in self.tensors.items() if w == what and s == step}


@dataclass(frozen=True)
class Derived:
    """What judging derives from all of a run before any check reads a recording (``judge/deriving.py``)."""

    own_rule: str | None = None  # the optimizer's class, if weights show that its update rule is the strategy's own
    is_sgd_elsewhere: bool = False  # other scenarios' weights show that the rule is SGD's
    compared_alone: bool = False  # in some scenario, the strategy's own rule could be run on one rank
    never_moves: bool = False  # no weight moves in any scenario
    at_rest: bool = False  # nor in one, at least, in which all gradients are finite and all ranks came to their end
    not_made: str | None = None  # in words, a run on one rank that is due as the standard for weights, and was not made
    wrong_without_restart: str | None = None  # in words, the same without the restart, if that is wrong too


@dataclass(frozen=True, eq=False)
class Recording:
    """One scenario, whole: the ranks' recordings, the reference's, and how the processes ended."""

    scenario: Scenario
    ranks: list[RankRecording]
    reference: RankRecording | None
    launch: dict[str, Any]
    alone: Recording | None = None  # the strategy on one rank, with all ranks' samples
    nudged: Sequence[Recording] = ()  # the same with a little added to its gradients, and with it subtracted
    derived: Derived = Derived()

    @classmethod
    def load(cls, folder: Path) -> Recording:
        """``reading.read``, for who has this class alone. Raises FileNotFoundError if ``folder`` holds no scenario."""
        from verifier.reading import read

        return read(folder)

    @property
    def complete(self) -> bool:
        return all(rank.completed for rank in self.ranks)

    @cached_property
    def refused(self) -> str | None:
        """The strategy's message if it refused this scenario, as it may; None if it did not refuse."""
        return refusal(self)

    @property
    def own_rule(self) -> str | None:
        """The optimizer's class, if its update rule is the strategy's own: a rank said so, or weights show it."""
        noted: str | None = self.ranks[0].notes.get("own_optimizer")
        return noted or self.derived.own_rule

    @property
    def maybe_own_rule(self) -> str | None:
        """The same, or a class of optimizer of the strategy's own that may implement the rule asked for."""
        noted: str | None = self.ranks[0].notes.get("own_rule")
        return self.own_rule or noted

    @cached_property
    def not_claimed(self) -> str | None:
        """Why the strategy did not run this scenario, or not to its end; None if it did."""
        return self.ranks[0].notes.get("not_claimed")

    @cached_property
    def parameter_names(self) -> list[str]:
        """Trainable parameters in the bare model's registration order."""
        for rank in [*([self.reference] if self.reference else []), *self.ranks]:
            if "parameters" in rank.notes:
                return [entry["name"] for entry in rank.notes["parameters"]]
        return []

    @cached_property
    def frozen_names(self) -> list[str]:
        """Parameters of the bare model that no rank may train."""
        frozen: list[str] = self.reference.notes.get("frozen", []) if self.reference else []
        return frozen


def derive(recording: Recording, **derived: Any) -> Recording:
    """``recording`` with these fields of ``derived``, and its others as they are."""
    return replace(recording, derived=replace(recording.derived, **derived))


def opened(contents: Contents | None, shape: Sequence[int]) -> np.ndarray | None:
    """The numbers in ``contents``. Ramps are unpacked on each call: all of them together may not fit into memory."""
    if not isinstance(contents, bytes):
        return contents
    values = unpacked(contents, math.prod(shape))
    return None if values is None else values.reshape(shape)
