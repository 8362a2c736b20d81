"""What we rely on in DBOS, one private call included. If an upgrade breaks this file, `service/queue.py` must change.

Special here: it runs DBOS in this process, which can hold one instance; so these are one test after another.
"""

from __future__ import annotations

import asyncio
import inspect
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import sqlalchemy as sa
from dbos import DBOS
from sqlalchemy.orm import Session

from service import queue
from service.db import connect
from service.queue import Consumer, Producer
from service.settings import Settings

QUEUE_MODULE = Path(queue.__file__)


@pytest.fixture
def engine(settings: Settings) -> Iterator[sa.Engine]:
    engine = connect(settings.database)
    yield engine
    engine.dispose()


@pytest.fixture
def consumers(engine: sa.Engine) -> Iterator[Callable[..., Consumer]]:
    def launch(name: str, body: queue.Body, at_once: int = 4) -> Consumer:
        consumer = Consumer(engine, name, at_once, body)
        consumer.launch()
        return consumer

    yield launch
    DBOS.destroy()


def until(check: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 30
    while not check():
        assert time.monotonic() < deadline
        time.sleep(0.02)


def enqueue(engine: sa.Engine, run_id: str, priority: int = 0) -> None:
    producer = Producer(engine)
    with Session(engine) as session, session.begin():
        producer.enqueue(session, run_id, priority)
    producer.close()


def test_the_private_call_is_there_as_we_call_it() -> None:
    parameters = inspect.signature(DBOS._recover_pending_workflows).parameters
    assert list(parameters) == ["executor_ids"]


def test_nothing_else_in_the_service_knows_dbos() -> None:
    for file in QUEUE_MODULE.parent.rglob("*.py"):
        if file != QUEUE_MODULE:
            text = file.read_text(encoding="utf-8")
            assert "import dbos" not in text, file
            assert "from dbos" not in text, file


def test_a_rolled_back_transaction_queues_nothing(engine: sa.Engine, consumers: Callable[..., Consumer]) -> None:
    seen: list[str] = []

    async def body(run_id: str) -> None:
        seen.append(run_id)

    producer = Producer(engine)
    with Session(engine) as session:
        producer.enqueue(session, "rolled back", 0)
        session.rollback()
    producer.close()
    enqueue(engine, "committed")
    consumers("a", body)
    until(lambda: bool(seen))
    assert seen == ["committed"]


def test_runs_of_the_dead_are_recovered_once_and_those_of_the_living_never(
    engine: sa.Engine, consumers: Callable[..., Consumer]
) -> None:
    started, done = threading.Event(), threading.Event()

    async def never_ends(_run_id: str) -> None:
        started.set()
        await asyncio.Event().wait()

    async def ends(_run_id: str) -> None:
        done.set()

    first = consumers("first", never_ends)
    enqueue(engine, "run")
    assert started.wait(30)
    assert first.recover(lambda: {"first"}) == 0
    first.close()  # as good as killed: the run stays held by it

    second = consumers("second", ends)
    assert second.recover(lambda: {"first", "second"}) == 0
    assert second.recover(lambda: {"second"}) == 1
    assert done.wait(30)
    assert second.recover(lambda: {"second"}) == 0
    until(lambda: second.ended(["run"]) == ["run"])


def test_a_larger_priority_goes_first_and_no_more_run_than_may(
    engine: sa.Engine, consumers: Callable[..., Consumer]
) -> None:
    order: list[str] = []
    together = most = 0

    async def body(run_id: str) -> None:
        nonlocal together, most
        together += 1
        most = max(most, together)
        order.append(run_id)
        await asyncio.sleep(0.05)
        together -= 1

    for run_id, priority in [("plain", 0), ("urgent", 10), ("whenever", -10)]:
        enqueue(engine, run_id, priority)
    consumers("a", body, at_once=1)
    until(lambda: len(order) == 3)
    assert order == ["urgent", "plain", "whenever"]
    assert most == 1


def test_a_body_that_fails_is_repeated(
    engine: sa.Engine, consumers: Callable[..., Consumer], monkeypatch: pytest.MonkeyPatch
) -> None:
    tries: list[str] = []

    async def body(run_id: str) -> None:
        tries.append(run_id)
        if len(tries) == 1:
            raise sa.exc.OperationalError("UPDATE", {}, Exception("database is away"))

    consumer = consumers("a", body)
    enqueue(engine, "run")
    until(lambda: consumer.ended(["run"]) == ["run"])
    assert tries == ["run", "run"]
