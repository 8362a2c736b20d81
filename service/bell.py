"""Rings for a stream when something has happened to its run: one look at the database for all streams of a process.

Special here: whoever listens has subscribed *before* he reads, so what happens in between rings. Numbers of events are
given before they are committed, on Postgres: each look goes back over the last ones, in case one came late.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager

import sqlalchemy as sa
import structlog

from service.db import EventRow

EVERY_S = 0.2
LATE = 500  # events that may have been numbered before one that was committed later
log = structlog.get_logger()


class Bell:
    """Belongs to one event loop."""

    def __init__(self, engine: sa.Engine) -> None:
        self._engine = engine
        self._listening: defaultdict[str, set[asyncio.Event]] = defaultdict(set)
        self._seen: set[int] | None = None
        self._task: asyncio.Task[None] | None = None
        self.closed = False

    @contextmanager
    def subscribed(self, run_id: str) -> Iterator[asyncio.Event]:
        """An event that is set whenever something happens to ``run_id``; whoever waits for it clears it."""
        rung = asyncio.Event()
        self._listening[run_id].add(rung)
        if self._task is None or self._task.done():
            self._task = asyncio.get_running_loop().create_task(self._watch(), name="bell")
        try:
            yield rung
        finally:
            self._listening[run_id].discard(rung)
            if not self._listening[run_id]:
                del self._listening[run_id]

    def close(self) -> None:
        """The service stops: whoever listens is to end. Clients take a stream up again elsewhere, or later."""
        self.closed = True
        for rung in set[asyncio.Event]().union(*self._listening.values()):
            rung.set()

    async def _watch(self) -> None:
        """Look as long as anybody listens."""
        self._seen = None
        while self._listening and not self.closed:
            try:
                for run_id in await asyncio.to_thread(self._new):
                    for rung in self._listening.get(run_id, ()):
                        rung.set()
            except Exception:  # the database may be away for a while; streams look for themselves now and then
                log.warning("looking for events failed")
            await asyncio.sleep(EVERY_S)

    def _new(self) -> set[str]:
        """The runs that something has happened to since the last look; at the first one all that were lately."""
        newest = sa.select(EventRow.id, EventRow.run_id).order_by(EventRow.id.desc()).limit(LATE)
        with self._engine.connect() as connection:
            found = connection.execute(newest).all()
        before, self._seen = self._seen or set(), {row.id for row in found}
        return {row.run_id for row in found if row.id not in before}
