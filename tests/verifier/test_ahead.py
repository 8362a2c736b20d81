"""Processes forked ahead that wait for a role: used once, replaced when they end, never too many, never left over."""

from __future__ import annotations

import os
import signal
import time

import psutil
import pytest

from verifier.engine import start_launcher
from verifier.request import Builtin, Request
from verifier.situation import plan


@pytest.fixture
def launcher():
    with start_launcher() as own:
        yield own


def run(launcher, folder, world_size=2):
    request = Request(strategy=Builtin(name="naive"), world_size=world_size, profile="quick")
    (scenario,) = [scenario for scenario in plan(request) if scenario.name == "plain"]
    scenario.save(folder)
    ended = launcher.run(scenario, folder, 60)
    assert [member["exit_code"] for member in ended["members"]] == [0] * (world_size + 1)
    return [member["name"] for member in ended["members"]]


def waiting(launcher, wanted):
    """The server's children, once there are ``wanted`` of them: the server forks them after its answer."""
    server, deadline = psutil.Process(launcher._server.pid), time.monotonic() + 10
    while len(found := server.children()) != wanted and time.monotonic() < deadline:
        time.sleep(0.01)
    return found


def test_as_many_wait_as_the_last_job_had_ranks(launcher, tmp_path):
    for number, world_size in enumerate((2, 4, 3, 2)):
        assert len(run(launcher, tmp_path / str(number), world_size)) == world_size + 1
        assert len(waiting(launcher, world_size)) == world_size


def test_they_use_no_processor(launcher, tmp_path):
    run(launcher, tmp_path / "a")
    found = waiting(launcher, 2)
    time.sleep(0.5)  # they run a rehearsal first
    before = [process.cpu_times()[:2] for process in found]
    time.sleep(1)
    assert [process.cpu_times()[:2] for process in found] == before


def test_one_that_is_gone_is_replaced(launcher, tmp_path):
    run(launcher, tmp_path / "a")
    for process in waiting(launcher, 2):
        os.kill(process.pid, signal.SIGKILL)
        while process.status() != psutil.STATUS_ZOMBIE:
            time.sleep(0.01)
    run(launcher, tmp_path / "b")
    assert len(waiting(launcher, 2)) == 2


def test_they_end_with_the_server(tmp_path):
    with start_launcher() as launcher:
        run(launcher, tmp_path / "a")
        found = waiting(launcher, 2)
    assert not psutil.wait_procs(found, timeout=5)[1]


def test_they_end_with_a_server_that_is_killed(launcher, tmp_path):
    run(launcher, tmp_path / "a")
    found = waiting(launcher, 2)
    os.kill(launcher._server.pid, signal.SIGKILL)
    assert not psutil.wait_procs(found, timeout=5)[1]


def test_a_rehearsal_leaves_nothing_in_a_recording(launcher, tmp_path):
    for name in ("first", "second"):  # the first job's ranks were forked for it, the second's ahead of it
        run(launcher, tmp_path / name)
    first, second = ((tmp_path / name / "subject/rank1/blobs.bin").read_bytes() for name in ("first", "second"))
    assert first == second
