"""Fixtures: an app over a database of its own, and the service as a process of its own.

Special here: every answer that a test receives from the app is held against the OpenAPI document, so an
undeclared status code or a wrong media type fails the test that provoked it.
"""

from __future__ import annotations

import asyncio
import importlib.util
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import httpx
import psutil
import pytest
from fastapi import FastAPI

import verifier
from service.app import create_app
from service.db import connect
from service.log import configure_logging
from service.migrate import migrate
from service.settings import Settings
from tests.service.postgres_server import postgres, url  # noqa: F401 (fixtures)

HERE = Path(__file__).parent
DEADLINE_S = 45.0


@pytest.fixture(autouse=True)
def _no_settings_from_outside(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in os.environ if name.startswith("LOCKSTEP_")]:
        monkeypatch.delenv(name)


@pytest.fixture(autouse=True, scope="session")
def _plain_log() -> None:
    configure_logging()


@pytest.fixture(scope="session")
def stub() -> ModuleType:
    spec = importlib.util.spec_from_file_location("stub_engine", HERE / "stub_engine.py")
    assert spec is not None
    assert spec.loader is not None
    found = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(found)
    return found.module()


@pytest.fixture
def engine_stub(stub: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "verifier.engine", stub)
    monkeypatch.setattr(verifier, "engine", stub, raising=False)


@pytest.fixture(scope="session")
def migrated(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A data directory with a fresh database, to be copied."""
    settings = Settings(data_dir=tmp_path_factory.mktemp("migrated"))
    settings.runs_dir.mkdir()
    engine = connect(settings.database)
    migrate(settings, engine)
    engine.dispose()
    return settings.data_dir


@pytest.fixture
def settings(migrated: Path, tmp_path: Path) -> Settings:
    shutil.copytree(migrated, tmp_path / "data")
    return Settings(data_dir=tmp_path / "data", slots=4, allowed_hosts="test, testserver")


class Client:
    """Asks the app without a network. Fails on an answer that the OpenAPI document does not announce."""

    def __init__(self, app: FastAPI) -> None:
        self.app = app
        transport = httpx.ASGITransport(app, raise_app_exceptions=False)
        self._http = httpx.AsyncClient(transport=transport, base_url="http://test")
        self._runner = asyncio.Runner()

    def get(self, path: str, **more: Any) -> httpx.Response:
        return self.request("GET", path, **more)

    def post(self, path: str, **more: Any) -> httpx.Response:
        return self.request("POST", path, **more)

    def request(self, method: str, path: str, **more: Any) -> httpx.Response:
        response = self._runner.run(self._http.request(method, path, **more))
        for template, operations in self.app.openapi()["paths"].items():
            if _fits(template, response.request.url.path) and method.lower() in operations:
                declared = operations[method.lower()]["responses"]
                assert str(response.status_code) in declared, f"{method} {path} answered undeclared {response}"
                kinds = declared[str(response.status_code)].get("content", {})
                assert response.headers.get("content-type", "").partition(";")[0] in (kinds or {""})
                break
        return response

    def close(self) -> None:
        self._runner.run(self._http.aclose())
        self._runner.close()


def _fits(template: str, path: str) -> bool:
    wanted, found = template.split("/"), path.split("/")
    return len(wanted) == len(found) and all(w.startswith("{") or w == f for w, f in zip(wanted, found, strict=True))


@pytest.fixture
def client(settings: Settings, engine_stub: None) -> Iterator[Client]:
    client = Client(create_app(settings))
    yield client
    client.close()


class Service:
    """The service (or a part of it) as a process, with the stub engine unless told otherwise."""

    def __init__(self, data_dir: Path, *arguments: str, engine: str = "stub", **environment: str) -> None:
        self.data_dir = data_dir
        self.log = data_dir.parent / "stub.log"
        self.output = data_dir.parent / f"output.{time.monotonic_ns()}"
        program = [str(HERE / "stub_engine.py")] if engine == "stub" else ["-m", "service.serve"]
        settings = {"LOCKSTEP_SLOTS": "4", "LOCKSTEP_DATA_DIR": str(data_dir), "LOCKSTEP_PORT": "0", **environment}
        with self.output.open("wb") as output:
            self.process = subprocess.Popen(
                [sys.executable, *program, *arguments],
                env={**os.environ, **settings, "STUB_LOG": str(self.log), "PYTHONPATH": str(HERE.parents[1])},
                cwd=HERE.parents[1],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
            )
        self.family: list[psutil.Process] = []

    def text(self) -> str:
        return self.output.read_text(errors="replace")

    def ready(self) -> Service:
        """Wait for the greeting."""
        greeted = ("Lockstep serves", "Lockstep worker")
        self.until(lambda: any(words in self.text() for words in greeted), "it to greet")
        for word in self.text().split():
            if word.startswith("http://"):
                self.http = httpx.Client(base_url=word, timeout=30)
                break
        return self

    def until(self, check: Callable[[], Any], what: str) -> Any:
        deadline = time.monotonic() + DEADLINE_S
        while not (found := check()):
            assert self.process.poll() is None, f"ended with {self.process.returncode}:\n{self.text()}"
            assert time.monotonic() < deadline, f"waited in vain for {what}:\n{self.text()}"
            time.sleep(0.05)
        return found

    def submit(self, world_size: int = 2, **options: Any) -> str:
        body = {"strategy": {"kind": "builtin", "name": "bucketed", "options": options}, "world_size": world_size}
        answer = self.http.post("/runs", json=body)
        assert answer.status_code == 202, answer.text
        return answer.json()["id"]

    def run(self, run_id: str) -> dict[str, Any]:
        return self.http.get(f"/runs/{run_id}").json()

    def wait(self, run_id: str, state: str = "finished") -> dict[str, Any]:
        self.until(lambda: self.run(run_id)["state"] == state, f"{run_id} to be {state}")
        return self.run(run_id)

    def events(self) -> list[str]:
        return self.log.read_text().splitlines() if self.log.exists() else []

    def let_go(self) -> None:
        """Let held runs end."""
        Path(f"{self.log}.go").touch()

    def end(self, number: int = signal.SIGTERM) -> int:
        """Send a signal, wait, and see that nothing is left of the process and its children."""
        if self.process.poll() is None:
            self.family = psutil.Process(self.process.pid).children(recursive=True)
            self.process.send_signal(number)
        try:
            code = self.process.wait(DEADLINE_S)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
            raise AssertionError(f"did not stop:\n{self.text()}") from None
        _gone, left = psutil.wait_procs(self.family, timeout=15)
        assert not left, f"left behind: {left}"
        return code


@pytest.fixture
def start(tmp_path: Path, migrated: Path) -> Iterator[Callable[..., Service]]:
    """Start a service process; all of a test's share a data directory. They are ended with the test."""
    started: list[Service] = []
    data_dir = tmp_path / "data"
    shutil.copytree(migrated, data_dir)

    def start_one(*arguments: str, **keywords: Any) -> Service:
        service = Service(data_dir, *arguments, **keywords)
        started.append(service)
        return service

    yield start_one
    for service in started:
        service.end(signal.SIGKILL)
