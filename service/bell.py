"""Wakes streams when their run has a new event: one database query serves all streams of a process.

Special here: a stream subscribes *before* it reads events, so an event in between still wakes it. Postgres numbers
events before they are committed, so each query reads the last ones again, in case one was committed late.
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
LATE = 500  # how many of the newest events each query reads again
log = structlog.get_logger()


class Bell:
    """Wakes the streams of one event loop; it must be used only there."""

    def __init__(self, engine: sa.Engine) -> None:
        self._engine = engine
        self._listening: defaultdict[str, set[asyncio.Event]] = defaultdict(set)
        self._seen: set[int] | None = None
        self._task: asyncio.Task[None] | None = None
        self.closed = False

    @contextmanager
    def subscribed(self, run_id: str) -> Iterator[asyncio.Event]:
        """An ``asyncio.Event`` that is set at each event of ``run_id``; the stream that waits for it clears it."""
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
        """Wake all streams so that they end, because the service stops. Clients resume a stream elsewhere or later."""
        self.closed = True
        for rung in set[asyncio.Event]().union(*self._listening.values()):
            rung.set()

    async def _watch(self) -> None:
        """Query the database repeatedly as long as any stream is subscribed."""
        self._seen = None
        while self._listening and not self.closed:
            try:
                for run_id in await asyncio.to_thread(self._new):
                    for rung in self._listening.get(run_id, ()):
                        rung.set()
            except Exception:  # the database may be unreachable for a while; streams also query it themselves
                log.warning("looking for events failed")
            await asyncio.sleep(EVERY_S)

    def _new(self) -> set[str]:
        """The runs with events since the last query; at the first query the runs of the newest ``LATE`` events."""
        newest = sa.select(EventRow.id, EventRow.run_id).order_by(EventRow.id.desc()).limit(LATE)
        with self._engine.connect() as connection:
            found = connection.execute(newest).all()
        before, self._seen = self._seen or set(), {row.id for row in found}
        return {row.run_id for row in found if row.id not in before}
