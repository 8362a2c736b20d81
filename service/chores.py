"""A worker's background tasks: sending messages that are due, and deleting old data.

Special here: any number of workers may run the same chore at once. A chore that fails is tried again at its next turn,
because an unreachable database is no reason to stop.
"""

from __future__ import annotations

import threading
import time

import sqlalchemy as sa
import structlog

from service.queue import Producer
from service.retention import Retention
from service.settings import Settings
from service.webhooks import Sender

SEND_EVERY_S = 2.0
SWEEP_EVERY_S = 600.0
log = structlog.get_logger()


class Chores:
    """Runs the chores in a thread of its own, so that a receiver that does not answer delays nothing else."""

    def __init__(self, settings: Settings, engine: sa.Engine) -> None:
        self._producer = Producer(engine)
        self._sender, self._retention = Sender(settings, engine), Retention(settings, engine, self._producer)
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="chores", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """Stop without waiting. A message that is being sent will be sent again by another worker."""
        self._stopping.set()

    def _run(self) -> None:
        sweep_at = time.monotonic() + SEND_EVERY_S
        while not self._stopping.wait(SEND_EVERY_S):
            try:
                self._sender.send_due()
                if time.monotonic() >= sweep_at:
                    self._retention.sweep()
                    sweep_at = time.monotonic() + SWEEP_EVERY_S
            except Exception:
                if not self._stopping.is_set():
                    log.exception("a chore failed")
