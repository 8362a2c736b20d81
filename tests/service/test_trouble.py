"""What goes wrong around a service that runs for a year: a full disk, a clock that jumps, two workers of one name."""

from __future__ import annotations

import os
import shutil
import signal
import sqlite3
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from service import heartbeat
from service.db import connect
from service.settings import Settings

Start = Callable[..., Any]


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of its own that is soon full."""
    folder = tmp_path / "data"
    folder.mkdir(exist_ok=True)
    words = ["mount", "-t", "tmpfs", "-o", "size=4m", "lockstep-test", str(folder)]
    mounted = subprocess.run(words, capture_output=True)
    if mounted.returncode:
        pytest.skip("nothing can be mounted here")
    yield folder
    subprocess.run(["umount", "--lazy", str(folder)], check=True)


def test_a_full_disk_loses_nothing_that_was_accepted(
    tmp_path: Path, migrated: Path, small_disk: Path, start: Start
) -> None:
    service = start("--port", "0").ready()
    assert os.path.ismount(service.data_dir)
    before = service.submit()
    service.wait(before)
    held = service.submit(hold=True)
    service.wait(held, "running")
    filler = small_disk / "filler"
    with filler.open("wb", buffering=0) as file, suppress(OSError):
        while True:
            file.write(b"\0" * 4096)
    statuses = {
        service.http.post("/runs", json={"strategy": {"kind": "builtin", "name": "naive"}, "world_size": 2}).status_code
        for _ in range(5)
    }
    assert statuses <= {202, 503}, "accepted, or refused in as many words"
    assert service.run(before)["verdict"] == "pass"
    filler.unlink()
    service.let_go()
    service.until(lambda: service.run(held)["state"] in ("finished", "errored"), "the run that was under way")
    assert service.wait(service.submit())["verdict"] == "pass"
    assert service.end() == 0


@pytest.fixture
def start(tmp_path: Path, migrated: Path, request: pytest.FixtureRequest) -> Iterator[Start]:
    """As everywhere, but in a data directory that may be there already."""
    from tests.service.conftest import Service

    if "small_disk" in request.fixturenames:
        request.getfixturevalue("small_disk")
    data_dir = tmp_path / "data"
    shutil.copytree(migrated, data_dir, dirs_exist_ok=True)
    started: list[Any] = []

    def start_one(*arguments: str, **keywords: Any) -> Any:
        started.append(Service(data_dir, *arguments, **keywords))
        return started[-1]

    yield start_one
    for service in started:
        service.end(signal.SIGKILL)


def test_two_workers_of_one_name_do_not_take_each_others_runs(start: Start) -> None:
    api = start("--port", "0", "--no-worker").ready()
    one_slot = {"LOCKSTEP_EXECUTOR_ID": "twin", "LOCKSTEP_SLOTS": "1"}
    first, second = (start("--worker-only", **one_slot).ready() for _ in range(2))
    held = [api.submit(world_size=4, hold=True) for _ in range(2)]
    for run_id in held:
        api.wait(run_id, "running")
    time.sleep(2)  # several sweeps of both
    assert [api.run(run_id)["attempt"] for run_id in held] == [1, 1]
    holders = {api.run(run_id)["executor_id"] for run_id in held}
    assert len(holders) == 2
    assert all(holder.startswith("twin-") for holder in holders)
    first.end(signal.SIGKILL)
    api.let_go()
    assert sorted(api.wait(run_id)["attempt"] for run_id in held) == [1, 2]
    assert second.end() == 0


@pytest.mark.parametrize("jump_s", [-86_400, 86_400])
def test_a_clock_that_jumps_kills_nobody(settings: Settings, monkeypatch: pytest.MonkeyPatch, jump_s: float) -> None:
    engine = connect(settings.database)
    heartbeat.beat(engine, "here", 2)
    now = time.time
    monkeypatch.setattr(time, "time", lambda: now() + jump_s)
    assert heartbeat.alive(engine) == {"here"}, "of this machine: looked up, not waited for"
    heartbeat.beat(engine, "here", 2)
    assert heartbeat.alive(engine) == {"here"}
    engine.dispose()


def test_a_run_submitted_before_the_clock_jumped_is_executed(start: Start) -> None:
    """Rows of another time, as a clock that was set back leaves them."""
    api = start("--port", "0", "--no-worker").ready()
    run_id = api.submit()
    with sqlite3.connect(api.data_dir / "lockstep.sqlite") as database:
        database.execute("UPDATE runs SET created_at = '2099-01-01 00:00:00'")
        database.execute("UPDATE workflow_status SET created_at = created_at + 86400000")
    worker = start("--worker-only").ready()
    assert api.wait(run_id)["verdict"] == "pass"
    assert api.http.get("/metrics").status_code == 200
    assert worker.end() == 0
