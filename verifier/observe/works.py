"""A collective in flight, and how it lands: what a caller gets in place of the transport's own ``Work``.

Special here: a collective *lands* when its caller learns that it is done, by waiting, by polling or through a future.
Only then does the caller's tensor hold the result. Landing happens once, by whichever thread comes first. No thread
sleeps with the lock held, and the transport's thread never sleeps at all.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from datetime import timedelta
from typing import Any, Protocol

import torch
from torch.distributed import Work

from verifier.observe.cargo import Cargo
from verifier.uncompiled import uncompiled


class Watcher(Protocol):
    """What a work reports to: the observer."""

    def landed(self, seq: int, *, spent_s: float, **how: Any) -> None: ...
    def waiting_for(self, label: str) -> AbstractContextManager[None]: ...
    def holds_future_s(self) -> float: ...


class ObservedWork(Work):
    """One collective in flight. ``inner``, the transport's work, may be None: it is then done in stream order."""

    def __init__(
        self, watcher: Watcher, seq: int, label: str, inner: Any, cargo: Cargo, *, hold_s: float, from_anyone: bool
    ) -> None:
        super().__init__()
        self._watcher, self.seq, self._label, self._inner, self._cargo = watcher, seq, label, inner, cargo
        self._from_anyone = from_anyone
        self._not_before = time.monotonic() + hold_s if hold_s else 0.0
        self._lock = threading.Lock()
        self._future: torch.futures.Future | None = None
        self.has_landed = self.moves = False  # moves: by an operation that is not a reduction
        self._how = ""

    @uncompiled
    def wait(self, timeout: timedelta | None = None) -> bool:
        return self._wait(lambda: self._inner.wait() if timeout is None else self._inner.wait(timeout))

    @uncompiled
    def block_current_stream(self) -> None:
        self._wait(lambda: self._inner.block_current_stream())

    @uncompiled
    def synchronize(self) -> None:
        self.wait()

    @uncompiled
    def is_completed(self) -> bool:
        """Return whether it is done. Polling is a legal way to learn that the result is there, so it lands, too."""
        if not (self.has_landed or self._transported()) or (self._held_s() > 0 and not self.has_landed):
            return False
        self.land("polled")
        return True

    @uncompiled
    def is_success(self) -> bool:
        return self._inner is None or bool(self._inner.is_success())

    @uncompiled
    def exception(self) -> Any:
        return None if self._inner is None else self._inner.exception()

    @uncompiled
    def result(self) -> list[torch.Tensor]:
        self.wait()
        return self._cargo.results

    @uncompiled
    def source_rank(self) -> int:
        return int(self._inner._source_rank())

    _source_rank = source_rank

    @uncompiled
    def _get_op_type(self) -> Any:
        return self._inner._get_op_type()

    @uncompiled
    def _get_duration(self) -> float:
        return float(self._inner._get_duration())

    @uncompiled
    def get_future_result(self) -> torch.futures.Future:
        return self._inner.get_future_result()

    @uncompiled
    def get_future(self) -> torch.futures.Future:
        """Return what torch's C++ reducer waits for. Lands when the transport is done, on the transport's thread."""
        if self._future is None:
            inner = self._inner.get_future()
            if (held := self._watcher.holds_future_s()) and not self.has_landed:
                self._not_before = max(self._not_before, time.monotonic() + held)

            def landed(finished: torch.futures.Future) -> list[torch.Tensor]:
                try:
                    finished.wait()
                except BaseException:
                    self._failed()
                    raise
                self.land("future")
                return self._cargo.results

            on_cpu = all(t.device.type == "cpu" for t in self._cargo.outputs)
            late = self._not_before and not self.has_landed and on_cpu  # a future of an accelerator knows its stream
            self._future = _later(inner, landed, self._held_s) if late else inner.then(landed)
        return self._future

    @contextmanager
    def showing(self, tensor: torch.Tensor, patience_s: float) -> Iterator[None]:
        """While inside, ``tensor`` holds what it will hold once this has landed, if this collective writes to it and
        the transport is done within ``patience_s``.
        """
        writes, until = self._cargo.writes_to(tensor), time.monotonic() + patience_s
        while writes and not self._transported() and time.monotonic() < until:
            time.sleep(0.001)
        with self._lock, torch.no_grad():
            show = writes and self._transported() and not self.has_landed
            with self._cargo.come_down() if show else nullcontext():
                yield

    def _transported(self) -> bool:
        return self._inner is None or bool(self._inner.is_completed())

    def land(self, how: str, wait_began: float | None = None) -> None:
        """Show the caller the result from here on. Only the first call does anything."""
        began = time.perf_counter()
        with self._lock:
            if self.has_landed:
                return
            with torch.no_grad():
                written = self._cargo.unload()
            self.has_landed, self._how = True, how
        self._watcher.landed(
            self.seq,
            how=how,
            wait_began=wait_began,
            written=written,
            source=self._source(),
            spent_s=time.perf_counter() - began,
        )

    def lost_its_input(self) -> bool:
        """Return whether nobody has waited for it, and what the transport reads was written to since it began."""
        with self._lock, torch.no_grad():
            return not self.has_landed and not self._cargo.read_only()

    def _wait(self, block: Callable[[], Any]) -> bool:
        if self._how == "waited" or self._inner is None:
            self.land("waited")
            return True
        began = time.monotonic()
        with self._watcher.waiting_for(self._label):
            try:  # also if polling or a future has landed it: a caller that waits is told of errors
                done = block()
            except BaseException:
                self._failed()
                raise
            if not self.has_landed and (held := self._held_s()) > 0:
                time.sleep(held)
        self.land("waited", began)
        return done is None or bool(done)

    def _failed(self) -> None:
        """After an error, or only a timeout of the caller's: if the transport is done, land what it has left."""
        if self._inner.is_completed():
            self.land("failed")

    def _held_s(self) -> float:
        return self._not_before - time.monotonic() if self._not_before else 0.0

    def _source(self) -> int | None:
        """Return the sender, in the group's numbering, where the caller did not say from whom it receives."""
        if not self._from_anyone:
            return None
        try:
            return int(self._inner._source_rank())
        except RuntimeError:  # a transport that does not know
            return None


def _later(
    inner: torch.futures.Future, landed: Callable[[torch.futures.Future], Any], held_s: Callable[[], float]
) -> torch.futures.Future:
    """Return a future that fires late, from a thread of its own: the transport's thread must go on."""
    late: torch.futures.Future = torch.futures.Future()

    def finish(finished: torch.futures.Future) -> None:
        try:
            late.set_result(landed(finished))
        except Exception as error:
            late.set_exception(error)

    def arrived(finished: torch.futures.Future) -> None:
        timer = threading.Timer(max(held_s(), 0.0), finish, (finished,))
        timer.daemon = True
        timer.start()

    inner.add_done_callback(arrived)
    return late


class BatchWork(Work):
    """The end of a batch (``_end_coalescing`` of NCCL): one work of the transport for several collectives of ours."""

    def __init__(self, inner: Any, works: Sequence[ObservedWork]) -> None:
        super().__init__()
        self._inner, self._works = inner, list(works)

    @uncompiled
    def wait(self, timeout: timedelta | None = None) -> bool:
        done = True
        if self._inner is not None:
            done = bool(self._inner.wait() if timeout is None else self._inner.wait(timeout))
        self._land("waited")
        return done

    @uncompiled
    def is_completed(self) -> bool:
        done = self._inner is None or bool(self._inner.is_completed())
        if done:
            self._land("polled")
        return done

    @uncompiled
    def synchronize(self) -> None:
        self.wait()

    @uncompiled
    def is_success(self) -> bool:
        return self._inner is None or bool(self._inner.is_success())

    @uncompiled
    def exception(self) -> Any:
        return None if self._inner is None else self._inner.exception()

    @uncompiled
    def block_current_stream(self) -> None:
        self._inner.block_current_stream()
        self._land("waited")

    @uncompiled
    def get_future(self) -> torch.futures.Future:
        return self._inner.get_future().then(self._landed)

    def _landed(self, finished: torch.futures.Future) -> Any:
        value = finished.wait()
        self._land("future")
        return value

    def _land(self, how: str) -> None:
        for work in self._works:
            work.land(how)
