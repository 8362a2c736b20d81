"""The observer: sits under every strategy, where all collectives pass, and writes them down.

``verifier.observe.kernels`` routes every ``c10d::`` operator through ``Observer.issue``, which records the call, starts
it on the backend and returns a ``Work`` of ours (``verifier.observe.works``).

Special here is the **poison**: the real collective runs on a shadow copy, and the caller's tensor holds NaN until the
caller waits. A legal asynchronous transport may do that. A strategy that reads too early then shows it on every
machine, every time, and not only on a slow day in production; for a future, which lands by itself, that takes a delay.
A write to a tensor in flight is noted, whether the transport reads or writes that tensor, and also where nobody waits.
"""

from __future__ import annotations

import mmap
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch.distributed import ProcessGroup, Work, distributed_c10d

from verifier.errors import OurFault
from verifier.journal import Journal, dtype_name, tensor_bytes
from verifier.observe.cargo import Cargo
from verifier.observe.delay import Delay
from verifier.observe.poison import POISON_FLOAT32, POISON_FLOAT64
from verifier.observe.works import BatchWork, ObservedWork
from verifier.recording import REDUCTIONS

PATIENCE_S = 5.0  # how long to wait for a transport that moves a tensor that the verifier wants to read

__all__ = ["POISON_FLOAT32", "POISON_FLOAT64", "Board", "Call", "Observer"]


@dataclass
class Call:
    """One call of a ``c10d::`` operator. Ranks are numbered as in the group here, and globally in the journal."""

    op: str
    group: ProcessGroup
    inputs: list[torch.Tensor]  # what the transport reads and must find unchanged until it is done
    outputs: list[torch.Tensor]  # what it writes; tensors of in-place operators are here, and not among the inputs
    reduce_op: str | None = None
    root: int | None = None
    peer: int | None = None
    tag: int | None = None
    results: list[torch.Tensor] | None = None  # what its future holds, where that is not the outputs
    sends: list[int] | None = None  # elements for each member of the group, where these may differ
    receives: list[int] | None = None
    brought: list[torch.Tensor] = field(init=False)  # what this rank brings, or gets where it brings nothing

    def __post_init__(self) -> None:
        self.brought = self.inputs or self.outputs


class Observer:
    """Records the collectives of this process in ``journal``; installed by ``verifier.observe.kernels.install``.

    The worker keeps ``phase``, ``step``, ``micro`` (which micro-batch) and ``in_no_sync`` up to date.
    """

    def __init__(
        self, journal: Journal, board: Path, *, poison: bool, keep_payloads: bool, delay: Delay | None = None
    ) -> None:
        self.journal, self.poison, self.keep_payloads, self.delay = journal, poison, keep_payloads, delay
        self.phase, self.step = "wrap", -1
        self.micro: int | None = None
        self.in_no_sync = False
        self.num_calls = 0
        self.num_bytes = 0
        self.num_carried = 0  # bytes that calls read or write, whichever is more
        self.num_reduced = Counter[tuple[int, str]]()  # elements this rank brought to reductions, by step and phase
        self._num_futures = Counter[int]()  # that were asked for, by step
        self.overhead_s = 0.0
        self._lock = threading.Lock()  # several threads may issue collectives; no thread blocks while it holds this
        self._alive: list[ObservedWork] = []  # C++ keeps the C++ half of a Work alive; Python must keep ours
        self._batches: dict[str, list[ObservedWork]] = {}  # by group, between _start_coalescing and _end_coalescing
        self._batch_works: list[BatchWork] = []
        self._board = Board(board)

    def issue(self, call: Call, start: Callable[[list[torch.Tensor], list[torch.Tensor]], Any]) -> Work:
        """Record one collective, start it on shadows of the outputs, poison the outputs, return the Work.

        ``start(shadows, inputs)`` calls the backend. What it raises is the backend's own error, and goes to the caller.
        """
        begun = time.perf_counter()
        with _our_part(call):
            seq = self._record(call)
            label = self._label(call, seq)
            self._board.show("issues " + label)
            cargo = Cargo(call.inputs, call.outputs, poisoned=self.poison, results=call.results)
        self._spend(begun)
        if self.delay is not None:
            time.sleep(self.delay.before_issue(seq))
        try:
            inner = start(cargo.shadows, cargo.inputs)
        except BaseException:
            self.journal.write("landed", seq=seq, at=time.monotonic(), how="refused", written=None)
            raise
        begun = time.perf_counter()
        with _our_part(call), torch.no_grad():
            cargo.spoil()
            hold_s = 0.0 if self.delay is None else self.delay.before_landing(seq)
            from_anyone = call.op == "recv_any_source_"
            work = ObservedWork(self, seq, label, inner, cargo, hold_s=hold_s, from_anyone=from_anyone)
            work.moves = call.op not in REDUCTIONS
            self._keep(work, call.group)
        self._spend(begun)
        return work

    def issue_blocking(self, call: Call, start: Callable[[], None]) -> None:
        """Record and run an operator that returns no Work: it is done when it returns."""
        with _our_part(call):
            seq = self._record(call)
        began, how = time.monotonic(), "refused"
        try:
            with self.waiting_for(self._label(call, seq)):
                start()
            how = "waited"
        finally:
            self.journal.write(
                "landed", seq=seq, at=time.monotonic(), how=how, wait_began=began, written=None, source=None
            )

    def on_their_way(self) -> bool:
        """Return whether a collective other than a reduction is in flight that nobody has waited for yet."""
        with self._lock:
            return any(work.moves and not work.has_landed for work in self._alive)

    def arrived(self, tensor: torch.Tensor) -> torch.Tensor:
        """Return ``tensor``, or what it will hold once every non-reducing collective that writes to it has landed.

        For reading only: the tensor stays in flight for the strategy, which still has to wait.
        """
        with self._lock:
            moving = [work for work in self._alive if work.moves and not work.has_landed]
        if not moving or hasattr(tensor, "device_mesh"):
            return tensor
        with ExitStack() as stack:
            for work in moving:  # in the order in which they were issued
                stack.enter_context(work.showing(tensor, PATIENCE_S))
            return tensor.detach().clone()

    def synchronised(self) -> None:
        """Land what the transport has done: the whole device has been waited for."""
        with self._lock:
            works = [work for work in self._alive if not work.has_landed]
        for work in works:
            work.is_completed()

    def end(self) -> None:
        """The rank has come to its end: write down which inputs were written to while nobody had waited."""
        with self._lock:
            works = [work for work in self._alive if not work.has_landed]
        for work in works:
            if work.lost_its_input():
                self.journal.write("abandoned", seq=work.seq, written="input")

    def start_batch(self, group: ProcessGroup) -> None:
        """From here on the transport collects the group's calls (NCCL), to launch them as one."""
        self._batches[group.group_name] = []

    def end_batch(self, group: ProcessGroup, inner: Any) -> Work:
        work = BatchWork(inner, self._batches.pop(group.group_name, []))
        with self._lock:
            self._batch_works = [*self._batch_works[-31:], work]
        return work

    def landed(self, seq: int, *, spent_s: float, **how: Any) -> None:
        begun = time.perf_counter()
        self.journal.write("landed", seq=seq, at=time.monotonic(), **how)
        self._spend(begun - spent_s)

    @contextmanager
    def waiting_for(self, label: str) -> Iterator[None]:
        self._board.show("waits for " + label)
        try:
            yield
        finally:  # a caller may catch what the wait raised, and hang elsewhere
            self._board.show("after " + label)

    def holds_future_s(self) -> float:
        """Return for how long the future that is asked for now is held back."""
        with self._lock:
            number = self._num_futures[self.step]
            self._num_futures[self.step] += 1
        return 0.0 if self.delay is None else self.delay.before_firing(number)

    def members(self, group: ProcessGroup) -> list[int]:
        """Return the global ranks of ``group``, in its own order."""
        found = distributed_c10d._world.pg_group_ranks.get(group)
        return list(range(group.size())) if found is None else list(found)  # None: it is being made right now

    def _label(self, call: Call, seq: int) -> str:
        numel = sum(t.numel() for t in call.brought)
        return f"step {self.step}, {self.phase}: {call.op.strip('_')} number {seq} of {numel} elements"

    def _record(self, call: Call) -> int:
        brought, members = call.brought, self.members(call.group)
        num_bytes, numel = _num_bytes(brought), sum(t.numel() for t in brought)
        with self._lock:
            seq = self.num_calls
            self.num_calls += 1
            self.num_bytes += num_bytes
            self.num_carried += max(_num_bytes(call.inputs), _num_bytes(call.outputs))
            self.num_reduced[self.step, self.phase] += numel * (call.op in REDUCTIONS)
            self.journal.write(
                "collective",
                seq=seq,
                op=call.op,
                group=call.group.group_name,
                ranks=members,
                phase=self.phase,
                step=self.step,
                micro=self.micro,
                no_sync=self.in_no_sync,
                dtype=dtype_name(brought[0]) if brought else "none",
                numel=numel,
                num_bytes=num_bytes,
                shapes=[list(t.shape) for t in brought[:32]],
                dense=all(t.layout == torch.strided and t.is_contiguous() for t in brought),
                reduce_op=call.reduce_op,
                root=_globally(members, call.root),
                peer=_globally(members, call.peer),
                tag=call.tag,
                sends=call.sends,
                receives=call.receives,
                issued=time.monotonic(),
                blob=self._payload(call),
            )
        return seq

    def _payload(self, call: Call) -> list[int | str] | None:
        if not (self.keep_payloads and self.phase != "wrap" and _as_numbers(call.brought)) or call.tag is not None:
            return None
        parts = [tensor_bytes(t) for t in call.brought]
        return self.journal.blob(parts[0] if len(parts) == 1 else memoryview(b"".join(parts)), call.brought[0].dtype)

    def _keep(self, work: ObservedWork, group: ProcessGroup) -> None:
        with self._lock:
            if len(self._alive) >= 32:  # each keeps its tensors alive
                self._alive = [w for w in self._alive[:-8] if not w.has_landed] + self._alive[-8:]
            self._alive.append(work)
            if group.group_name in self._batches:
                self._batches[group.group_name].append(work)

    def _spend(self, begun: float) -> None:
        self.overhead_s += time.perf_counter() - begun


class Board:
    """What this rank is doing right now, in memory that outlives it; the launcher reads it when a rank hangs."""

    SIZE = 256

    def __init__(self, path: Path) -> None:
        with path.open("w+b") as file:
            file.truncate(self.SIZE)
            self._memory = mmap.mmap(file.fileno(), self.SIZE)

    def show(self, text: str) -> None:
        self._memory[:] = text.encode()[: self.SIZE].ljust(self.SIZE, b"\0")


@contextmanager
def _our_part(call: Call) -> Iterator[None]:
    """Turn an error of ours into OurFault: errors of the transport are the strategy's to explain."""
    try:
        yield
    except Exception as error:
        raise OurFault(f"the observer failed in {call.op.strip('_')}: {error!r}") from error


def _num_bytes(tensors: Sequence[torch.Tensor]) -> int:
    return sum(t.numel() * t.element_size() for t in tensors)


def _globally(members: Sequence[int], rank: int | None) -> int | None:
    """Return the group's ``rank`` as a global one. A rank outside the group is left to the backend to refuse."""
    return members[rank] if rank is not None and 0 <= rank < len(members) else rank


def _as_numbers(tensors: Sequence[torch.Tensor]) -> bool:
    """Return whether a reader that has only numpy can make one array of ``tensors``."""
    dtypes = {t.dtype for t in tensors}
    return (
        len(dtypes) == 1
        and all(t.layout == torch.strided and not t.is_complex() for t in tensors)
        and not any("float8" in str(dtype) for dtype in dtypes)
    )
