"""The observer: sits under every strategy, where all collectives pass, and writes them down.

``verifier.kernels`` routes every ``c10d::`` operator through ``Observer.issue``, which records the call, starts it on
the backend and returns a ``Work`` of ours.

Special here is the **poison**: the real collective runs on a shadow copy, and the caller's tensor holds NaN until
the caller waits. A legal asynchronous transport may do that; a strategy that reads early now shows it on every
machine, every time, instead of on a slow day in production. A write to a tensor in flight is lost in the same way,
and noted.
"""

from __future__ import annotations

import mmap
import time
from collections.abc import Callable, Sequence
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any

import torch
from torch.distributed import ProcessGroup, Work

from verifier.journal import Journal, dtype_name, tensor_bytes

# A quiet NaN whose payload says "poison": arithmetic keeps it, so a NaN of ours is told from a NaN of theirs.
POISON_FLOAT32 = 0x7FC0DEAD
POISON_FLOAT64 = 0x7FF80000DEADDEAD


class ObservedWork(Work):
    """A collective in flight. ``wait`` lands it: only then does the caller's tensor hold the result."""

    def __init__(self, observer: Observer, seq: int, label: str, inner: Any, pairs: Sequence[tuple[Any, Any]]) -> None:
        super().__init__()
        self._observer, self._seq, self._label, self._inner, self._pairs = observer, seq, label, inner, pairs
        self._versions = [_version(mine) for mine, _ in pairs]  # autograd counts in-place writes, views included
        self._landed = False
        self._future: torch.futures.Future | None = None

    def wait(self, timeout: timedelta | None = None) -> bool:
        if not self._landed:
            with self._observer.waiting_for(self._label):
                self._inner.wait() if timeout is None else self._inner.wait(timeout)
        self._land()
        return True

    def is_completed(self) -> bool:
        """Polling is a legal way to learn that the result is there, so it lands the result, too."""
        done = bool(self._inner.is_completed())
        if done:
            self._land()
        return done

    def is_success(self) -> bool:
        return bool(self._inner.is_success())

    def exception(self) -> Any:
        return self._inner.exception()

    def synchronize(self) -> None:
        self.wait()

    def result(self) -> list[torch.Tensor]:
        self.wait()
        return [mine for mine, _ in self._pairs]

    def get_future(self) -> torch.futures.Future:
        """What torch's C++ reducer waits for. Lands when the transport is done, on the transport's thread."""
        if self._future is None:

            def landed(finished: torch.futures.Future) -> list[torch.Tensor]:
                finished.wait()
                self._land()
                return [mine for mine, _ in self._pairs]

            self._future = self._inner.get_future().then(landed)
        return self._future

    def _land(self) -> None:
        if self._landed:
            return
        self._landed = True
        written = any(_version(mine) != version for (mine, _), version in zip(self._pairs, self._versions, strict=True))
        with torch.no_grad():
            for mine, shadow in self._pairs:
                if mine is not shadow:
                    mine.copy_(shadow)
        self._pairs = [(mine, mine) for mine, _ in self._pairs]  # shadows are a copy of the gradients each
        self._observer.landed(self._seq, written)


class Observer:
    """Records the collectives of this process in ``journal``. ``verifier.kernels.install`` puts it in place."""

    def __init__(self, journal: Journal, board: Path, *, poison: bool, keep_payloads: bool) -> None:
        self.journal, self.poison, self.keep_payloads = journal, poison, keep_payloads
        self.phase, self.step = "wrap", -1
        self.num_calls = 0
        self.num_bytes = 0
        self.overhead_s = 0.0
        self._alive: list[Work] = []  # C++ keeps the C++ half of a Work; Python must keep ours
        self._board = Board(board)

    def issue(
        self,
        op: str,
        pg: Any,
        inputs: Sequence[torch.Tensor],
        outputs: Sequence[torch.Tensor],
        start: Callable[[Any, list[torch.Tensor]], Any],
        *,
        reduce_op: str | None = None,
        root: int | None = None,
    ) -> Work:
        """Record one collective, start it on shadows of ``outputs``, poison ``outputs``, return the Work.

        ``start(backend, shadows)`` calls the backend. In-place operators pass the same tensors twice.
        """
        begun = time.perf_counter()
        group = ProcessGroup.unbox(pg)
        seq = self.num_calls
        self.num_calls += 1
        self._record(seq, op, group, inputs, reduce_op, root)
        label = (
            f"step {self.step}, {self.phase}: {op.strip('_')} number {seq} of {sum(t.numel() for t in inputs)} elements"
        )
        self._board.show("issues " + label)
        backend = group._get_backend(_device(inputs or outputs))
        shadows = [t.clone(memory_format=torch.preserve_format) if self.poison else t for t in outputs]
        self.overhead_s += time.perf_counter() - begun
        inner = start(backend, shadows)
        begun = time.perf_counter()
        if self.poison:
            for tensor in outputs:
                spoil(tensor)
        work = ObservedWork(self, seq, label, inner, list(zip(outputs, shadows, strict=True)))
        self._keep_alive(work)
        self.overhead_s += time.perf_counter() - begun
        return work

    def landed(self, seq: int, written: bool) -> None:
        self.journal.write("landed", seq=seq, at=time.monotonic(), written=written)

    @contextmanager
    def waiting_for(self, label: str) -> Any:
        self._board.show("waits for " + label)
        yield
        self._board.show("after " + label)

    def _record(
        self, seq: int, op: str, group: Any, inputs: Sequence[torch.Tensor], reduce_op: str | None, root: int | None
    ) -> None:
        numel = sum(t.numel() for t in inputs)
        num_bytes = sum(t.numel() * t.element_size() for t in inputs)
        self.num_bytes += num_bytes
        blob = None
        if self.keep_payloads and inputs and self.phase != "wrap":
            parts = [self.journal.blob(tensor_bytes(t)) for t in inputs]
            blob = [parts[0][0], sum(size for _, size in parts)]
        self.journal.write(
            "collective",
            seq=seq,
            op=op,
            group=group.group_name,
            phase=self.phase,
            step=self.step,
            dtype=dtype_name(inputs[0]) if inputs else "none",
            numel=numel,
            num_bytes=num_bytes,
            reduce_op=reduce_op,
            root=root,
            issued=time.monotonic(),
            blob=blob,
        )

    def _keep_alive(self, work: Work) -> None:
        if len(self._alive) >= 32:  # each holds on to the tensors that it worked on
            self._alive = [w for w in self._alive[:-8] if not w._landed] + self._alive[-8:]  # type: ignore[attr-defined]
        self._alive.append(work)


class Board:
    """What this rank is doing right now, in memory that outlives it: read by the launcher when a rank hangs."""

    SIZE = 256

    def __init__(self, path: Path) -> None:
        with path.open("w+b") as file:
            file.truncate(self.SIZE)
            self._memory = mmap.mmap(file.fileno(), self.SIZE)

    def show(self, text: str) -> None:
        self._memory[:] = text.encode()[: self.SIZE].ljust(self.SIZE, b"\0")


def spoil(tensor: torch.Tensor) -> None:
    """Fill a tensor in flight with what nobody can mistake for a result."""
    with torch.no_grad():
        if tensor.dtype == torch.float32 and tensor.is_contiguous():
            tensor.view(torch.int32).fill_(POISON_FLOAT32)
        elif tensor.dtype == torch.float64 and tensor.is_contiguous():
            tensor.view(torch.int64).fill_(POISON_FLOAT64)
        elif tensor.is_floating_point() or tensor.is_complex():
            tensor.fill_(float("nan"))
        elif tensor.dtype != torch.bool:
            tensor.fill_(torch.iinfo(tensor.dtype).max)


def _version(tensor: torch.Tensor) -> int:
    return 0 if tensor.is_inference() else tensor._version


def _device(tensors: Sequence[torch.Tensor]) -> torch.device:
    return tensors[0].device if tensors else torch.device("cpu")
