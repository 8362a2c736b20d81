"""The main use, for real: compose up, a strategy posted, its verdict; and a worker killed in the middle of a run."""

from __future__ import annotations

import os
import subprocess
import time
import uuid
from collections.abc import Callable, Iterator
from typing import Any

import httpx
import pytest

from tests.conftest import ROOT
from tests.docker.conftest import source
from tests.docker.test_containers import WRONG, until
from verifier.launchers.docker import RUN

RIGHT = WRONG.replace("dist.all_reduce(p.grad)", "dist.all_reduce(p.grad); p.grad /= dist.get_world_size()")
PORT = 18_437


@pytest.fixture(scope="module")
def service(client: Any) -> Iterator[httpx.Client]:
    """``docker compose up`` in a project of its own, with whatever builder's settings the environment holds."""
    project = f"lockstep-test-{uuid.uuid4().hex[:6]}"
    command = ["docker", "compose", "-p", project]
    environment = {**os.environ, "LOCKSTEP_PORT": str(PORT)}

    def compose(*words: str) -> None:
        done = subprocess.run([*command, *words], cwd=ROOT, env=environment, capture_output=True, text=True)
        assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]

    try:
        compose("up", "--build", "--detach")
        with httpx.Client(base_url=f"http://127.0.0.1:{PORT}", timeout=20) as http:
            http.project = project  # type: ignore[attr-defined]
            until(lambda: answers(http))
            yield http
    finally:
        compose("down", "--volumes", "--timeout", "5")


def answers(http: httpx.Client) -> bool:
    try:
        return http.get("/healthz").status_code == 200
    except httpx.TransportError:
        return False


def post(http: httpx.Client, files: dict[str, str], entrypoint: str, **fields: Any) -> str:
    strategy = {"kind": "source", "files": files, "entrypoint": entrypoint}
    answer = http.post("/runs", json={"strategy": strategy, "world_size": 2, "profile": "quick", **fields})
    assert answer.status_code == 202, answer.text
    return str(answer.json()["id"])


def verdict(http: httpx.Client, run: str, limit_s: float = 240) -> dict[str, Any]:
    deadline = time.monotonic() + limit_s
    while (row := http.get(f"/runs/{run}").json())["state"] in ("queued", "running"):
        assert time.monotonic() < deadline, row
        time.sleep(0.5)
    return dict(row)


def in_state(http: httpx.Client, run: str, state: str) -> Callable[[], bool]:
    return lambda: http.get(f"/runs/{run}").json()["state"] == state


def test_posted_strategies_come_to_verdicts(service):
    runs = {
        "pass": post(service, {"mine.py": RIGHT}, "mine:wrap"),
        "fail": post(service, {"mine.py": WRONG}, "mine:wrap"),
    }
    for expected, run in runs.items():
        row = verdict(service, run)
        assert (row["state"], row["verdict"]) == ("finished", expected), row
    answer = service.post("/runs", json={"strategy": {"kind": "builtin", "name": "naive"}, "launcher": "local"})
    assert answer.status_code == 422
    assert "by 'docker' alone" in answer.text


def test_the_worker_is_killed_and_the_run_is_finished_by_the_next(service, client):
    ref = source("hangs")
    run = post(service, ref.files, ref.entrypoint, timeout_s=60)
    until(in_state(service, run, "running"))
    until(lambda: len(client.containers.list(filters={"label": RUN})) >= 2)
    left = {container.id for container in client.containers.list(filters={"label": RUN})}
    ours = {"label": f"com.docker.compose.project={service.project}", "name": "worker"}
    (worker,) = client.containers.list(filters=ours)
    worker.kill("SIGKILL")
    worker.start()  # what `restart: unless-stopped` does not do after a kill by hand
    row = verdict(service, run)
    assert (row["state"], row["verdict"]) == ("finished", "fail"), row
    until(lambda: not left & {container.id for container in client.containers.list(all=True, filters={"label": RUN})})
