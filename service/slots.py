"""Limits how many ranks run at once on this worker: a first-come, first-served weighted semaphore.

Special here: DBOS counts runs, but a run of eight ranks costs as much as eight runs of one rank. A run larger than
the worker still runs: it waits for all slots and then has the worker to itself. The order is strict, so that a
stream of small runs cannot keep a large one waiting for ever.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager


class Slots:
    """The semaphore. It must be used from one event loop only."""

    def __init__(self, total: int) -> None:
        self.total = total
        self.free = total
        self._waiting: deque[tuple[int, asyncio.Future[None]]] = deque()

    @asynccontextmanager
    async def take(self, wanted: int) -> AsyncIterator[None]:
        weight = min(max(wanted, 1), self.total)
        await self._acquire(weight)
        try:
            yield
        finally:
            self._release(weight)

    async def _acquire(self, weight: int) -> None:
        if not self._waiting and self.free >= weight:
            self.free -= weight
            return
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        entry = (weight, turn)
        self._waiting.append(entry)
        try:
            await turn
        except asyncio.CancelledError:
            if turn.done() and not turn.cancelled():
                self._release(weight)  # cancelled just after it got its slots: pass them on
            else:
                if entry in self._waiting:
                    self._waiting.remove(entry)
                self._admit()  # it may have been the run that the others waited behind
            raise

    def _release(self, weight: int) -> None:
        self.free += weight
        self._admit()

    def _admit(self) -> None:
        while self._waiting and self._waiting[0][0] <= self.free:
            weight, turn = self._waiting.popleft()
            if not turn.done():
                self.free -= weight
                turn.set_result(None)
