"""The queue: all code that uses DBOS, and no other code.

Special here, each learnt from killing workers: (1) the run's row and its place in the queue are written in one
transaction; (2) the application version is fixed, or a restart with changed code would never execute old runs;
(3) only the run's id is queued, as portable JSON; (4) the body is one preemptible step: it is either recorded as done
or done again; (5) recovery is a stateless sweep over all runs held by workers that are not alive, because DBOS itself
recovers only runs of a worker that comes back under the same name. That sweep needs the only private call to DBOS in
this code, ``_recover_pending_workflows``, whose behaviour ``tests/service/test_queue_contract.py`` checks.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable

import sqlalchemy as sa
from dbos import DBOS, DBOSClient, DBOSPortableJSONSerializer
from sqlalchemy.orm import Session

APPLICATION = "lockstep"
VERSION = "1"  # of the queue's format, not of the product: raise it only if the meaning of a queued run id changes
QUEUE = "runs"
WORKFLOW = "lockstep.run"
POLL_S = 0.22  # a run waits at most this long for an idle worker, which costs 2.8 % of a core
# For us a larger priority goes first; for DBOS a smaller one does, and no priority goes before all others.
MAX_PRIORITY = 1000

Body = Callable[[str], Awaitable[None]]
_body: Body | None = None


# The body raises only if the database is unreachable: the retries give it about four minutes to come back.
@DBOS.step(name="lockstep.execute", preemptible=True, retries_allowed=True, max_attempts=8)
async def _execute(run_id: str) -> None:
    assert _body is not None, "a worker sets the body before it launches the queue"
    await _body(run_id)


# No limit on recoveries here: `Runs.claim` counts and limits attempts itself, and records them on the run.
@DBOS.workflow(name=WORKFLOW, max_recovery_attempts=None)
async def _run(run_id: str) -> None:
    await _execute(run_id)


def migrate_queue(url: str) -> None:
    """Create or update DBOS's own tables."""
    DBOS.migrate(url)


class Producer:
    """The API's side: puts runs into the queue. Connects when it is first used."""

    def __init__(self, engine: sa.Engine) -> None:
        self._client = DBOSClient(
            system_database_engine=engine,
            serializer=DBOSPortableJSONSerializer(),
            application_name=APPLICATION,
            lazy=True,
            retry_connection_errors=False,
        )

    def enqueue(self, session: Session, run_id: str, priority: int) -> None:
        """Enqueue within the caller's transaction."""
        self._client.enqueue_in_transaction(
            session,
            {
                "workflow_name": WORKFLOW,
                "queue_name": QUEUE,
                "workflow_id": run_id,
                "app_version": VERSION,
                "priority": MAX_PRIORITY + 1 - priority,
            },
            run_id,
        )

    def forget(self, run_ids: list[str]) -> None:
        """Delete the queue's records of runs that have ended."""
        self._client.delete_workflows(run_ids)

    def close(self) -> None:
        self._client.destroy()


class Consumer:
    """A worker's side: executes queued runs through ``body``. At most one per process."""

    def __init__(self, engine: sa.Engine, executor_id: str, at_once: int, body: Body) -> None:
        global _body
        _body = body
        self._at_once = at_once
        DBOS(
            config={
                "name": APPLICATION,
                "system_database_engine": engine,
                "application_version": VERSION,
                "executor_id": executor_id,
                "serializer": DBOSPortableJSONSerializer(),
                "run_migrations": False,
                "enable_otlp": False,
                "log_level": "WARNING",
            }
        )

    def launch(self) -> None:
        """Start executing runs. From now on the executor must have a heartbeat."""
        DBOS.launch()
        DBOS.register_queue(
            QUEUE, worker_concurrency=self._at_once, polling_interval_sec=POLL_S, on_conflict="always_update"
        )

    def recover(self, alive: Callable[[], set[str]]) -> int:
        """Queue the runs of dead workers again; return how many. It reads the living workers *after* the holders of
        runs, so that a worker that starts and picks a run up in between does not count as dead."""
        held = DBOS.list_workflows(status="PENDING", name=WORKFLOW, load_input=False, load_output=False)
        holders = {workflow.executor_id for workflow in held if workflow.executor_id is not None}
        dead = sorted(holders - alive())
        return len(DBOS._recover_pending_workflows(dead)) if dead else 0

    def ended(self, run_ids: Iterable[str]) -> list[str]:
        """The runs among ``run_ids`` for which the queue will do nothing more."""
        final = ["SUCCESS", "ERROR", "CANCELLED", "MAX_RECOVERY_ATTEMPTS_EXCEEDED"]
        ids, ended = list(run_ids), []
        for start in range(0, len(ids), 500):  # databases limit the parameters of one statement
            some = ids[start : start + 500]
            found = DBOS.list_workflows(workflow_ids=some, status=final, load_input=False, load_output=False)
            ended += [workflow.workflow_id for workflow in found]
        return ended

    def close(self) -> None:
        """Stop executing. Runs in progress stay held by this worker, until another worker's sweep recovers them."""
        DBOS.destroy()
