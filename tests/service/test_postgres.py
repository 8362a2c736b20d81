"""The same code on PostgreSQL, and what happens when it goes away for a while."""

from __future__ import annotations

import signal
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import httpx
import pytest
from alembic.autogenerate import compare_metadata
from alembic.runtime.migration import MigrationContext
from prometheus_client import generate_latest

from service import heartbeat
from service.caller import Caller
from service.db import Base, connect
from service.limits import Limits, TooMuch
from service.metrics import Metrics
from service.migrate import is_current, migrate
from service.queue import Producer
from service.retention import Retention
from service.runs import Runs
from service.settings import Settings
from service.webhooks import Sender
from tests.service.postgres_server import PostgresServer
from verifier.request import Builtin, Request


def test_migrations_states_and_heartbeats(url: str, tmp_path: Path) -> None:
    settings = Settings(data_dir=tmp_path, database_url=url)
    engine = connect(settings.database)
    migrate(settings, engine)
    migrate(settings, engine)
    assert is_current(engine)
    with engine.connect() as connection:
        assert compare_metadata(MigrationContext.configure(connection), Base.metadata) == []
    runs = Runs(engine)
    request = Request(strategy=Builtin(name="bucketed"), world_size=2)
    run_id = runs.add(request, {"a": "b"}, 0, lambda _session, _row: None).id
    claim = runs.claim(run_id, "somebody")
    assert claim is not None
    assert claim.request == request
    assert runs.finish(claim, "fail", "wrong")
    assert [row.id for row in runs.page(10, None, "finished", "fail")] == [run_id]
    assert [row.id for row in runs.page(10, None, None, None, strategy="bucketed", labels={"a": "b"})] == [run_id]
    assert (
        runs.page(10, None, None, None, labels={"a": "c"}) == runs.page(10, None, None, None, labels={"é$.": "b"}) == []
    )
    assert runs.get("%00") is None
    heartbeat.beat(engine, "somebody", 2)
    assert heartbeat.alive(engine) == {"somebody"}
    heartbeat.forget_old(engine)
    engine.dispose()


def test_a_killed_worker_is_taken_over_from(url: str, start: Callable[..., Any]) -> None:
    first = start("--port", "0", LOCKSTEP_DATABASE_URL=url).ready()
    held, waiting = first.submit(world_size=4, hold=True), first.submit(world_size=4)
    first.wait(held, "running")
    first.end(signal.SIGKILL)
    second = start("--port", "0", LOCKSTEP_DATABASE_URL=url)
    second.let_go()
    second.ready()
    assert second.wait(held)["attempt"] == 2
    assert second.wait(waiting)["attempt"] == 1
    assert [line for line in second.events() if line.startswith("end")].count(f"end {held}.2") == 1
    assert second.end() == 0
    assert "Traceback" not in second.text()


def test_messages_metrics_and_deletion(url: str, tmp_path: Path) -> None:
    settings = Settings(data_dir=tmp_path, database_url=url, webhook_secret="whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw")
    engine = connect(settings.database)
    migrate(settings, engine)
    runs, request = Runs(engine), Request(strategy=Builtin(name="bucketed"), world_size=2)
    caller = Caller("0123456789abcdef", "ci", "submit")
    settings.max_unfinished_per_key = 1
    admit = partial(Limits.of(settings).admit, caller=caller)
    more = {"key_id": caller.id, "webhook": "http://ci.example/"}
    run_id = runs.add(request, {}, 0, lambda *_: None, admit=admit, **more).id
    with pytest.raises(TooMuch):
        runs.add(request, {}, 0, lambda *_: None, admit=admit, **more)
    claim = runs.claim(run_id, "somebody")
    assert claim is not None
    runs.finish(claim, "pass", "right")
    posted: list[str] = []

    def post(address: str, **_: Any) -> httpx.Response:
        posted.append(address)
        return httpx.Response(204)

    assert Sender(settings, engine, post).send_due() == 1
    assert posted == ["http://ci.example/"]
    text = generate_latest(Metrics(engine).registry).decode()
    assert 'lockstep_runs_finished{verdict="pass"} 1.0' in text
    assert Retention(settings, engine, Producer(engine)).delete(run_id)
    assert runs.get(run_id) is None
    engine.dispose()


def test_gone_and_back(start: Callable[..., Any]) -> None:
    server = PostgresServer()
    try:
        service = start("--port", "0", LOCKSTEP_DATABASE_URL=server.database("away")).ready()
        held, waiting = service.submit(world_size=4, hold=True), service.submit(world_size=2)
        service.wait(held, "running")
        server.stop()
        for ask in (lambda: service.http.get("/runs"), lambda: service.http.get("/healthz")):
            answer = ask()
            assert (answer.status_code, answer.headers["retry-after"]) == (503, "5")
            assert answer.headers["content-type"] == "application/problem+json"
        service.let_go()  # it ends while there is nobody to tell
        server.start()
        assert service.wait(held)["verdict"] == "pass"
        assert service.wait(waiting)["verdict"] == "pass"
        assert service.wait(service.submit())["verdict"] == "pass"
        assert service.end() == 0
    finally:
        server.close()
