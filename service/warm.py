"""Keeps launchers between runs: fork servers, with torch loaded, stay for the next run; containers do not.

Special here: a launcher is lent to one run at a time, and kept only if that run used it without an incident. To cancel
a run, its launcher is closed while in use (``Lent.cancel``), which ends its ranks, wherever they are, at once.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator
from typing import Any

from verifier.request import Request

KEPT = ("local",)  # a run leaves no trace in such a launcher: ranks are forked, and end with their run


class Lent:
    """A launcher while one run uses it."""

    def __init__(self, launcher: Any) -> None:
        self.launcher = launcher
        self.ended = self.cancelled = False
        self._lock = threading.Lock()

    def cancel(self) -> None:
        """Close the launcher because the run was cancelled; errors that the run then meets do not count as failures."""
        self.cancelled = True
        self.end()

    def end(self) -> None:
        """Close the launcher. Returns when the ranks have ended; may be called by any thread, at any time."""
        with self._lock, contextlib.suppress(Exception):  # the run may be closing it at the same time
            if not self.ended:
                self.ended = True
                self.launcher.close()

    def take_back(self) -> bool:
        """End the loan: from now on ``end`` does nothing. Returns False if the launcher was closed before."""
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
        """Lend a launcher of the kind that ``request`` needs."""
        from verifier import engine  # imported late: the API must not load it

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
