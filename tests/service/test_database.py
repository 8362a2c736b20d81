"""Where the service keeps things: settings, the engine's SQLite, migrations."""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from alembic import command
from alembic.autogenerate import compare_metadata
from alembic.runtime.migration import MigrationContext

from service.db import Base, connect
from service.events import after
from service.migrate import alembic_config, is_current, migrate
from service.runs import Runs
from service.settings import Settings, load_settings
from verifier.errors import UsageError
from verifier.request import Builtin, Request

REQUEST = Request(strategy=Builtin(name="bucketed"), world_size=2)


def test_settings_come_from_the_environment_and_arguments_go_first(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LOCKSTEP_PORT", "9001")
    monkeypatch.setenv("LOCKSTEP_DATABASE_URL", "")
    monkeypatch.setenv("LOCKSTEP_DATA_DIR", "~/runs")
    assert load_settings(port=None).port == 9001
    assert load_settings(port=9002).port == 9002
    assert load_settings().database == f"sqlite:///{Path('~/runs').expanduser()}/lockstep.sqlite"
    monkeypatch.setenv("LOCKSTEP_DATABASE_URL", "postgres://me:pass@host/name")
    assert load_settings().database == "postgresql+psycopg://me:pass@host/name"
    monkeypatch.setenv("LOCKSTEP_DATABASE_URL", "sqlite://")
    with pytest.raises(UsageError, match="LOCKSTEP_DATABASE_URL"):
        load_settings()


def test_migrations_from_nothing_give_the_declared_tables(tmp_path: Path) -> None:
    settings = Settings(data_dir=tmp_path)
    engine = connect(settings.database)
    assert not is_current(engine)
    # Several processes of a deployment start at once, each migrating first.
    with ThreadPoolExecutor(3) as pool:
        engines = [connect(settings.database) for _ in range(3)]
        list(pool.map(lambda each: migrate(settings, each), engines))
    assert is_current(engine)
    with engine.connect() as connection:
        options = {"include_name": lambda name, kind, _: kind != "table" or name in Base.metadata.tables}
        context = MigrationContext.configure(connection, opts={**options, "compare_type": True})
        assert compare_metadata(context, Base.metadata) == []
        assert connection.exec_driver_sql("PRAGMA journal_mode").scalar() == "wal"
        assert connection.exec_driver_sql("PRAGMA foreign_keys").scalar() == 1
        assert connection.exec_driver_sql("PRAGMA busy_timeout").scalar() >= 5000
    for each in [engine, *engines]:
        each.dispose()


def test_many_writers_at_once_do_not_lock_each_other_out(settings: Settings) -> None:
    def write(number: int) -> str:
        engine = connect(settings.database)
        runs = Runs(engine)
        run_id = runs.add(REQUEST, {}, 0, lambda _session, _row: None).id
        claim = runs.claim(run_id, f"{os.getpid()}-{number}")
        assert claim is not None
        assert runs.finish(claim, "pass", "")
        engine.dispose()
        return run_id

    with ThreadPoolExecutor(8) as pool:
        assert len(set(pool.map(write, range(40)))) == 40


def test_rows_of_the_first_version_are_kept(tmp_path: Path) -> None:
    settings = Settings(data_dir=tmp_path)
    engine = connect(settings.database)
    with engine.begin() as connection:
        config = alembic_config()
        config.attributes["connection"] = connection
        command.upgrade(config, "0001")
        connection.exec_driver_sql(
            "INSERT INTO runs (id, state, strategy, world_size, request, labels, priority, attempt, created_at) VALUES "
            "('01a2000d-25ea-7749-9c70-1ca827bfcb37', 'queued', 'naive', 2, '{}', '{}', 0, 0, '2026-01-01 00:00:00')"
        )
    migrate(settings, engine)
    runs = Runs(engine)
    assert runs.get("01a2000d-25ea-7749-9c70-1ca827bfcb37").strategy == "naive"
    assert runs.cancel("01a2000d-25ea-7749-9c70-1ca827bfcb37").state == "cancelled"
    assert [row.text for row in after(engine, "01a2000d-25ea-7749-9c70-1ca827bfcb37", 0)] == ["cancelled"]
    engine.dispose()
