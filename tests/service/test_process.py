"""The service as a process: runs survive its death, it stops cleanly, and a bad start is one sentence."""

from __future__ import annotations

import signal
import socket
import sqlite3
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from service.serve import main

Start = Callable[..., Any]


def test_a_killed_service_loses_nothing_and_counts_nothing_twice(start: Start) -> None:
    first = start("--port", "0").ready()
    held, waiting = first.submit(world_size=4, hold=True), first.submit(world_size=4)
    first.wait(held, "running")
    assert first.end(signal.SIGKILL) == -signal.SIGKILL

    second = start("--port", "0")
    second.let_go()
    second.ready()
    again = second.wait(held)
    assert (again["verdict"], again["attempt"]) == ("pass", 2)
    assert second.wait(waiting)["attempt"] == 1
    finished = second.http.get("/runs", params={"state": "finished"}).json()["runs"]
    assert sorted(run["id"] for run in finished) == sorted([held, waiting])
    assert second.events().count(f"end {held}.1") == 0
    assert second.events().count(f"end {held}.2") == 1
    assert second.http.get(f"/runs/{held}/report").json()["verdict"] == "pass"
    assert list((second.data_dir / "runs" / ".work").iterdir()) == []
    assert second.end() == 0


def test_a_stopped_service_hands_its_runs_back(start: Start) -> None:
    first = start("--port", "0").ready()
    held = first.submit(hold=True)
    first.wait(held, "running")
    assert first.end(signal.SIGINT) == 0
    assert "Traceback" not in first.text()

    second = start("--port", "0")
    second.let_go()
    second.ready()
    assert second.wait(held)["attempt"] == 1, "to be stopped is not the run's fault"
    assert second.end(signal.SIGTERM) == 0


def picked_up(service: Any, run_id: str) -> bool:
    """Whether a worker holds the run, be it executing it or not."""
    with sqlite3.connect(service.data_dir / "lockstep.sqlite") as database:
        query = "SELECT status FROM workflow_status WHERE workflow_uuid = ?"
        return database.execute(query, (run_id,)).fetchone() == ("PENDING",)


def test_two_runs_at_once_and_a_large_one_alone(start: Start) -> None:
    service = start("--port", "0").ready()
    small = [service.submit(world_size=2, hold=True) for _ in range(2)]
    for run_id in small:
        service.wait(run_id, "running")
    large = service.submit(world_size=16, hold=True)
    service.until(lambda: picked_up(service, large), "the large one to be picked up")
    assert service.run(large)["state"] == "queued", "it waits for all of the slots"
    service.let_go()
    for run_id in [*small, large]:
        assert service.wait(run_id)["verdict"] == "pass"
    begun = service.events().index(f"begin {large}.1")
    assert all(service.events().index(f"end {run_id}.1") < begun for run_id in small)


def test_a_wrong_strategy_is_finished_and_our_own_error_is_errored(start: Start) -> None:
    service = start("--port", "0").ready()
    wrong, broken = service.submit(verdict="fail"), service.submit(boom=True)
    assert service.wait(wrong)["verdict"] == "fail"
    errored = service.wait(broken, "errored")
    assert errored["verdict"] is None
    assert "RuntimeError: the engine broke" in errored["error"]
    assert "RuntimeError" in (service.data_dir / "runs" / broken / "error.txt").read_text()
    with sqlite3.connect(service.data_dir / "lockstep.sqlite") as database:
        assert database.execute("PRAGMA journal_mode").fetchone() == ("wal",)


def test_a_second_worker_takes_over_from_one_that_was_killed(start: Start) -> None:
    api = start("--port", "0", "--no-worker").ready()
    assert api.http.get("/readyz").json()["workers"] == 0
    first = start("--worker-only").ready()
    held = api.submit(hold=True)
    api.wait(held, "running")
    second = start("--worker-only").ready()
    first.end(signal.SIGKILL)
    api.let_go()
    run = api.wait(held)
    assert run["attempt"] == 2
    assert str(second.process.pid) in run["executor_id"]
    assert second.end(signal.SIGTERM) == 0


def refused(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    """What a start that cannot succeed prints."""
    assert main(arguments) == 2
    said = capsys.readouterr().err
    assert said.startswith("Error: ")
    assert len(said.strip().splitlines()) == 1
    return said


def test_a_port_in_use_is_one_sentence(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        done = subprocess.run(
            [sys.executable, "-m", "service.serve", "--port", port, "--data", str(tmp_path)],
            cwd=Path(__file__).parents[2],
            capture_output=True,
            text=True,
            timeout=60,
        )
    assert done.returncode == 2
    assert len(done.stderr.strip().splitlines()) == 1
    assert port in done.stderr
    assert "--port" in done.stderr
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("arguments", "environment", "words"),
    [
        (["--data", "{file}/below"], {}, "--data"),
        (["--port", "99999"], {}, "less than or equal to 65535"),
        (["--port", "http"], {}, "valid integer"),
        (["--host", "no such host"], {}, "--host"),
        ([], {"LOCKSTEP_SLOTS": "0"}, "LOCKSTEP_SLOTS is '0'"),
        ([], {"LOCKSTEP_DATABASE_URL": "mysql://me:secret@db/x"}, "only sqlite"),
        ([], {"LOCKSTEP_DATABASE_URL": "postgresql://me:secret@127.0.0.1:1/x"}, "LOCKSTEP_DATABASE_URL"),
    ],
)
def test_a_start_that_cannot_succeed_says_why(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    arguments: list[str],
    environment: dict[str, str],
    words: str,
) -> None:
    (tmp_path / "file").touch()
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    given = {"--data": str(tmp_path / "data"), "--port": "0"}
    given |= dict(zip(arguments[::2], arguments[1::2], strict=True))
    said = refused(capsys, *(word.format(file=tmp_path / "file") for pair in given.items() for word in pair))
    assert words in said
    assert "secret" not in said
