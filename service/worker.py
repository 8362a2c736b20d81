"""A worker: takes runs from the queue, executes each with the verifier's engine, and stores the reports.

Special here: a run ends in exactly one way, whatever happens to this process. A run with a faulty strategy is
``finished``; only an exception of our own makes it ``errored``, with the traceback kept. A worker that is stopped
hands its runs back; runs of a killed one are recovered by another worker's sweep (``queue.Consumer.recover``).
"""

from __future__ import annotations

import asyncio
import os
import secrets
import socket
import threading
import traceback
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any

import sqlalchemy as sa
import structlog
from sqlalchemy.exc import SQLAlchemyError

from service import heartbeat
from service.chores import Chores
from service.events import Throttle
from service.queue import Consumer
from service.rundir import ERROR, REPORT, Attempt
from service.runs import Claim, Runs
from service.settings import Settings
from service.slots import Slots
from service.telemetry import spans
from service.warm import Lent, WarmLaunchers
from verifier.report.model import Report
from verifier.request import Request

log = structlog.get_logger()
# Every so many sweeps it looks for runs that the queue has given up but that have not ended.
_RECONCILE_EVERY = 15
CANCEL_S = 0.5  # how often a worker with runs checks whether they were cancelled


class Cancelled(Exception):
    """Raised when the run under execution was cancelled."""


def execute(request: Request, directory: Path, launcher: Any, progress: Callable[[str], None]) -> Report:
    """Call the engine; the service calls it only here. It is imported late, so that the API does not load torch."""
    from verifier import engine

    return engine.run(request, directory, launcher=launcher, progress=progress)


def reap_containers() -> list[str]:
    """Remove containers that dead workers have left."""
    from verifier.launchers import docker

    return docker.reap()


def executor_name(settings: Settings) -> str:
    """A name unique to this process: two workers of one name would recover each other's running runs."""
    return f"{settings.executor_id or socket.gethostname()[:60]}-{os.getpid()}-{secrets.token_hex(4)}"


class Worker:
    def __init__(self, settings: Settings, engine: sa.Engine) -> None:
        self.name = executor_name(settings)
        self._settings, self._engine = settings, engine
        self._runs = Runs(engine)
        self._span = spans(settings)
        self._slots = Slots(settings.slots)
        self._claims: dict[str, Claim] = {}
        self._lent: dict[str, Lent] = {}
        self._warm = WarmLaunchers(settings.slots)
        self._chores = Chores(settings, engine)
        self._stopping = threading.Event()
        self._threads = ThreadPoolExecutor(settings.slots, thread_name_prefix="run-")
        # Every run takes at least one slot, so there is no use in holding more runs than slots.
        self._consumer = Consumer(engine, self.name, settings.slots, self._body)
        self._pulse = threading.Thread(target=self._beat_and_sweep, name="heartbeat", daemon=True)
        self._watch = threading.Thread(target=self._end_cancelled, name="cancelled", daemon=True)

    @property
    def busy(self) -> bool:
        return bool(self._claims)

    def start(self) -> None:
        heartbeat.beat(self._engine, self.name, self._settings.slots)  # before it can hold a run
        self._consumer.launch()
        self._pulse.start()
        self._watch.start()
        self._chores.start()
        log.info("worker started", executor=self.name, slots=self._settings.slots)

    def stop(self) -> None:
        """Stop without waiting for runs in progress: they are handed back and begin again elsewhere."""
        self._stopping.set()
        self._chores.stop()
        self._pulse.join(timeout=5)
        self._watch.join(timeout=5)
        for claim in list(self._claims.values()):
            if self._runs.release(claim):
                log.info("run handed back", run=claim.run_id)
        heartbeat.leave(self._engine, self.name)
        self._consumer.close()
        self._threads.shutdown(wait=False, cancel_futures=True)
        self._warm.close()
        log.info("worker stopped", executor=self.name)

    async def _body(self, run_id: str) -> None:
        row = await asyncio.to_thread(self._runs.get, run_id)
        async with self._slots.take(row.world_size if row else 1):
            if self._stopping.is_set():
                await asyncio.Event().wait()  # until the loop ends: still held, so another worker recovers it
            await asyncio.get_running_loop().run_in_executor(self._threads, self._execute, run_id)

    def _execute(self, run_id: str) -> None:
        claim = self._runs.claim(run_id, self.name)
        if claim is None:
            return
        self._claims[run_id] = claim
        log.info("run started", run=run_id, attempt=claim.attempt, executor=self.name)
        try:
            with self._span("lockstep.run", {"lockstep.run.id": run_id, "lockstep.attempt": claim.attempt}):
                self._attempt(claim)
        finally:
            del self._claims[run_id]
            self._lent.pop(run_id, None)

    def _attempt(self, claim: Claim) -> None:
        attempt = Attempt(self._settings.runs_dir, claim.run_id, claim.attempt)
        try:
            if attempt.published_report.exists():  # its worker died after publishing, before recording it
                report = Report.model_validate_json(attempt.published_report.read_text(encoding="utf-8"))
            else:
                with self._warm.lend(claim.request) as lent:
                    self._lent[claim.run_id] = lent
                    report = execute(claim.request, attempt.begin(), lent.launcher, self._teller(claim))
                    if lent.cancelled:
                        raise Cancelled
                attempt.publish(REPORT, report.to_json())
        except Exception:
            if self._was_cancelled(claim):
                attempt.discard()
            else:
                self._failed(claim, attempt, traceback.format_exc())
        else:
            # Outside the try: an unreachable database must not fail the run; the queue repeats the step.
            ours = self._runs.finish(claim, report.verdict, report.summary)
            log.info("run finished", run=claim.run_id, verdict=report.verdict, kept=ours)

    def _teller(self, claim: Claim) -> Callable[[str], None]:
        throttle = Throttle()

        def tell(text: str) -> None:
            if throttle.lets_through():
                with suppress(SQLAlchemyError):  # an unreachable database is no reason to stop
                    self._runs.progress(claim, text)

        return tell

    def _was_cancelled(self, claim: Claim) -> bool:
        lent = self._lent.get(claim.run_id)
        return lent is not None and lent.cancelled

    def _end_cancelled(self) -> None:
        """End the ranks of runs that were cancelled while they run here. Makes no query while nothing runs."""
        while not self._stopping.wait(CANCEL_S):
            running = dict(self._lent)
            try:
                cancelled = self._runs.cancelled(list(running)) if running else []
            except Exception:  # the database may be unreachable for a while
                log.exception("looking for cancelled runs failed")
                continue
            for run_id in (run_id for run_id in cancelled if not running[run_id].cancelled):
                log.info("run cancelled", run=run_id)
                running[run_id].cancel()

    def _failed(self, claim: Claim, attempt: Attempt, error: str) -> None:
        if self._stopping.is_set():
            return  # the run failed because the worker stops, and was handed back
        log.error("run errored", run=claim.run_id, error=error)
        try:
            attempt.publish(ERROR, error)
        except OSError as problem:  # on a full disk the error must still reach the database
            error += f"\nIts directory could not be kept: {problem}"
        self._runs.fail(claim, error)

    def _beat_and_sweep(self) -> None:
        count = 0
        while not self._stopping.wait(heartbeat.INTERVAL_S if count else 0):
            try:
                heartbeat.beat(self._engine, self.name, self._settings.slots)
                recovered = self._consumer.recover(lambda: heartbeat.alive(self._engine) | {self.name})
                if recovered:
                    log.info("runs of dead workers queued again", runs=recovered)
                if count % _RECONCILE_EVERY == 0:
                    self._reconcile()
                    self._reap()
            except Exception:  # the database may be unreachable for a while; the next beat tries again
                log.exception("sweep failed")
            count += 1

    def _reap(self) -> None:
        if self._settings.launcher == "docker" and (removed := reap_containers()):
            log.info("containers of dead workers removed", containers=removed)

    def _reconcile(self) -> None:
        heartbeat.forget_old(self._engine)
        for run_id in self._consumer.ended(self._runs.unfinished()):
            if self._runs.give_up(run_id, "The queue ended this run without executing it to the end."):
                log.error("run given up", run=run_id)
