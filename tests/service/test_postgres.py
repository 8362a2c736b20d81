"""The same code on PostgreSQL, and what happens when it goes away for a while."""

from __future__ import annotations

import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

from alembic.autogenerate import compare_metadata
from alembic.runtime.migration import MigrationContext

from service import heartbeat
from service.db import Base, connect
from service.migrate import is_current, migrate
from service.runs import Runs
from service.settings import Settings
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
