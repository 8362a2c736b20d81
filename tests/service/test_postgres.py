"""The same code on Postgres: a server of its own, reached over a socket, for as long as these tests run.

Special here: skipped where no Postgres is installed. Nothing listens on a port.
"""

from __future__ import annotations

import os
import pwd
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa
from alembic.autogenerate import compare_metadata
from alembic.runtime.migration import MigrationContext

from service import heartbeat
from service.db import Base, connect
from service.migrate import is_current, migrate
from service.runs import Runs
from service.settings import Settings
from verifier.request import Builtin, Request


def _binary(name: str) -> str | None:
    installed = sorted(Path("/usr/lib/postgresql").glob(f"*/bin/{name}"))
    return shutil.which(name) or (str(installed[-1]) if installed else None)


def _user() -> str | None:
    """Postgres will not run as root; None: as whoever we are."""
    if os.geteuid() != 0:
        return None
    for name in ("postgres", "nobody"):
        try:
            return pwd.getpwnam(name).pw_name
        except KeyError:
            continue
    pytest.skip("Postgres does not run as root, and there is no other user")


@pytest.fixture(scope="module")
def server() -> Iterator[Path]:
    """The directory of the server's socket."""
    initdb, postgres = _binary("initdb"), _binary("postgres")
    if initdb is None or postgres is None:
        pytest.skip("no Postgres is installed")
    user = _user()
    home = Path(tempfile.mkdtemp(prefix="pg"))  # short: a socket's path may have 107 bytes
    if user is not None:
        shutil.chown(home, user)
    initialise = [initdb, "-D", str(home / "data"), "-U", "postgres", "-A", "trust", "-N", "-E", "UTF8", "--no-locale"]
    subprocess.run(initialise, check=True, capture_output=True, user=user, cwd=home)
    running = subprocess.Popen(
        [postgres, "-D", str(home / "data"), "-k", str(home), "-c", "listen_addresses=", "-c", "fsync=off"],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        user=user,
        cwd=home,
    )
    deadline = time.monotonic() + 30
    while not (home / ".s.PGSQL.5432").exists():
        assert running.poll() is None
        assert time.monotonic() < deadline
        time.sleep(0.05)
    yield home
    running.send_signal(signal.SIGINT)
    running.wait(30)
    shutil.rmtree(home)


@pytest.fixture
def url(server: Path, request: pytest.FixtureRequest) -> str:
    """A database for one test."""
    name = f"test_{abs(hash(request.node.nodeid))}"
    admin = sa.create_engine(f"postgresql+psycopg://postgres@/postgres?host={server}", isolation_level="AUTOCOMMIT")
    deadline = time.monotonic() + 30
    while True:
        try:
            with admin.connect() as connection:
                connection.exec_driver_sql(f"CREATE DATABASE {name}")
            break
        except sa.exc.OperationalError:  # still starting
            assert time.monotonic() < deadline
            time.sleep(0.1)
    admin.dispose()
    return f"postgresql://postgres@/{name}?host={server}"


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
