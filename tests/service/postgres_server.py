"""A real PostgreSQL for tests: a server of its own, reached over a socket, which can be stopped and started again.

Special here: skipped where none is installed. Nothing listens on a port.
"""

from __future__ import annotations

import os
import pwd
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import sqlalchemy as sa


def _binary(name: str) -> str:
    installed = sorted(Path("/usr/lib/postgresql").glob(f"*/bin/{name}"))
    found = shutil.which(name) or (str(installed[-1]) if installed else None)
    if found is None:
        pytest.skip("no PostgreSQL is installed")
    return found


def _user() -> str | None:
    """PostgreSQL will not run as root; None: as whoever we are."""
    if os.geteuid() != 0:
        return None
    for name in ("postgres", "nobody"):
        try:
            return pwd.getpwnam(name).pw_name
        except KeyError:
            continue
    pytest.skip("PostgreSQL does not run as root, and there is no other user")


class PostgresServer:
    def __init__(self) -> None:
        self._user = _user()
        self.home = Path(tempfile.mkdtemp(prefix="pg"))  # short: a socket's path may have 107 bytes
        if self._user is not None:
            shutil.chown(self.home, self._user)
        data = ["-D", str(self.home / "data")]
        initialise = [_binary("initdb"), *data, "-U", "postgres", "-A", "trust", "-N", "-E", "UTF8", "--no-locale"]
        subprocess.run(initialise, check=True, capture_output=True, user=self._user, cwd=self.home)
        self.start()

    def start(self) -> None:
        self._running = subprocess.Popen(
            [
                _binary("postgres"), "-D", str(self.home / "data"), "-k", str(self.home),
                "-c", "listen_addresses=", "-c", "fsync=off",
            ],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            user=self._user,
            cwd=self.home,
        )  # fmt: skip
        deadline = time.monotonic() + 30
        while not self._answers():
            assert self._running.poll() is None
            assert time.monotonic() < deadline
            time.sleep(0.05)

    def stop(self) -> None:
        """At once, ending every connection."""
        self._running.send_signal(signal.SIGINT)
        self._running.wait(30)

    def _answers(self) -> bool:
        try:
            self._execute("SELECT 1")
        except sa.exc.OperationalError:
            return False
        return True

    def _execute(self, statement: str) -> None:
        url = f"postgresql+psycopg://postgres@/postgres?host={self.home}"
        admin = sa.create_engine(url, isolation_level="AUTOCOMMIT", poolclass=sa.NullPool)
        with admin.connect() as connection:
            connection.exec_driver_sql(statement)

    def database(self, name: str) -> str:
        """The URL of a new database."""
        self._execute(f"CREATE DATABASE {name}")
        return f"postgresql://postgres@/{name}?host={self.home}"

    def close(self) -> None:
        self.stop()
        shutil.rmtree(self.home)


@pytest.fixture(scope="session")
def postgres() -> Iterator[PostgresServer]:
    server = PostgresServer()
    yield server
    server.close()


@pytest.fixture
def url(postgres: PostgresServer, request: pytest.FixtureRequest) -> str:
    """A database for one test."""
    return postgres.database(f"test_{abs(hash(request.node.nodeid))}_{time.monotonic_ns()}")
