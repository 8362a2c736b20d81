"""A worker: takes runs from the queue, executes each with the verifier's engine, and stores what came out.

Special here: a run ends in exactly one way whatever happens to this process. A strategy's fault is a finished
run; only our own exception makes it ``errored``, with the traceback kept. A worker told to stop hands its runs
back; one that is killed leaves them to the sweep of the next (``queue.Consumer.recover``).
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
# How often runs are looked for that the queue has given up and nobody ended: in sweeps.
_RECONCILE_EVERY = 15
CANCEL_S = 0.5  # how often a worker with runs asks whether they are still wanted


class Cancelled(Exception):
    """The run that was being executed is not wanted any more."""


def execute(request: Request, directory: Path, launcher: Any, progress: Callable[[str], None]) -> Report:
    """The service's one way into the engine. Imported late: the API must not pay for torch."""
    from verifier import engine

    return engine.run(request, directory, launcher=launcher, progress=progress)


def reap_containers() -> list[str]:
    """Remove what workers that died have left with the container engine."""
    from verifier.launchers import docker

    return docker.reap()


def executor_name(settings: Settings) -> str:
    """Unique for each process: two workers of one name would recover each other's running runs."""
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
        heartbeat.beat(self._engine, self.name, self._settings.slots)  # before it can hold anything
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
                await asyncio.Event().wait()  # until the loop ends: still held, so recovered by the next worker
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
            if attempt.published_report.exists():  # its worker died between publishing and saying so
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
            # Outside the try: a database that is away is no fault of the run; the queue repeats the step.
            ours = self._runs.finish(claim, report.verdict, report.summary)
            log.info("run finished", run=claim.run_id, verdict=report.verdict, kept=ours)

    def _teller(self, claim: Claim) -> Callable[[str], None]:
        throttle = Throttle()

        def tell(text: str) -> None:
            if throttle.lets_through():
                with suppress(SQLAlchemyError):  # a database that is away is no reason to stop
                    self._runs.progress(claim, text)

        return tell

    def _was_cancelled(self, claim: Claim) -> bool:
        lent = self._lent.get(claim.run_id)
        return lent is not None and lent.cancelled

    def _end_cancelled(self) -> None:
        """End the ranks of runs that were cancelled while they run here. Asks nothing while nothing runs."""
        while not self._stopping.wait(CANCEL_S):
            running = dict(self._lent)
            try:
                cancelled = self._runs.cancelled(list(running)) if running else []
            except Exception:  # the database may be away for a while
                log.exception("looking for cancelled runs failed")
                continue
            for run_id in (run_id for run_id in cancelled if not running[run_id].cancelled):
                log.info("run cancelled", run=run_id)
                running[run_id].cancel()

    def _failed(self, claim: Claim, attempt: Attempt, error: str) -> None:
        if self._stopping.is_set():
            return  # the service going away under it is no fault of the run: it was handed back
        log.error("run errored", run=claim.run_id, error=error)
        try:
            attempt.publish(ERROR, error)
        except OSError as problem:  # a full disk must not keep the error from the database as well
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
            except Exception:  # the database may be away for a while; the next beat tries again
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
