"""Launchers between runs: fork servers are kept, with torch loaded, for the next run; containers are not.

Special here: a launcher is lent to one run at a time, and only goes back if that run used it without an incident. A run
that is to be cancelled loses its launcher under it (``Lent.cancel``), which ends its ranks, wherever they are, at once.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator
from typing import Any

from verifier.request import Request

KEPT = ("local",)  # what such a launcher runs leaves no trace in it: ranks are forked, and end with their run


class Lent:
    """A launcher while one run uses it."""

    def __init__(self, launcher: Any) -> None:
        self.launcher = launcher
        self.ended = self.cancelled = False
        self._lock = threading.Lock()

    def cancel(self) -> None:
        """End it because the run is not wanted any more; what the run then meets is no fault of anybody's."""
        self.cancelled = True
        self.end()

    def end(self) -> None:
        """Take it away from the run. Returns when the ranks are gone; may be called by any thread, at any time."""
        with self._lock, contextlib.suppress(Exception):  # whoever uses it may be closing it for the same reason
            if not self.ended:
                self.ended = True
                self.launcher.close()

    def take_back(self) -> bool:
        """The run is done with it: from now on it is not the run's to end. False: it was ended before."""
        with self._lock:
            before, self.ended = self.ended, True
            return not before


class WarmLaunchers:
    def __init__(self, most: int) -> None:
        self._most = most
        self._idle: list[Any] = []
        self._lock = threading.Lock()
        self._closed = False

    @contextlib.contextmanager
    def lend(self, request: Request) -> Iterator[Lent]:
        """A launcher of the kind that ``request`` gets."""
        from verifier import engine  # late: the API must not pay for it

        kind = engine.launcher_for(request)
        lent = Lent(self._take(kind) or engine.start_launcher(kind))
        try:
            yield lent
        except BaseException:
            lent.end()
            raise
        if lent.take_back() and not self._give_back(kind, lent.launcher):
            lent.launcher.close()

    def close(self) -> None:
        with self._lock:
            self._closed = True
            idle, self._idle = self._idle, []
        for launcher in idle:
            launcher.close()

    def _take(self, kind: str) -> Any:
        with self._lock:
            return self._idle.pop() if kind in KEPT and self._idle else None

    def _give_back(self, kind: str, launcher: Any) -> bool:
        with self._lock:
            kept = kind in KEPT and not self._closed and len(self._idle) < self._most
            if kept:
                self._idle.append(launcher)
            return kept
