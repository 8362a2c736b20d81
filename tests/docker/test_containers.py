"""Whole verifications in containers, and what happens when containers, or who started them, are taken away."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from tests.docker.conftest import SMALL, Ended, source
from verifier import engine
from verifier.launcher import LaunchError
from verifier.launchers import docker as containers
from verifier.launchers.docker import OWNER, RUN, UNTIL, DockerLauncher
from verifier.request import Builtin, Request

WRONG = """
from ddp_core import Contract
import torch.distributed as dist

class W:
    def __init__(self, model):
        self.model = model
        for tensor in model.state_dict().values():
            dist.broadcast(tensor, src=0)
    def __call__(self, *inputs):
        return self.model(*inputs)
    def sync_gradients(self):
        for p in self.model.parameters():
            dist.all_reduce(p.grad)

CONTRACT = Contract(disclaims={"unused_parameters"})
wrap = W
"""


def mine(client: Any, launcher: DockerLauncher, part: str = "") -> list[Any]:
    found = client.containers.list(all=True, filters={"label": f"{RUN}={launcher.run_id}"})
    return [container for container in found if part in container.name]


@pytest.mark.parametrize("topology", ["ranks", "single"])
def test_the_right_one_passes_and_the_wrong_one_fails(client, tmp_path, topology):
    wrong = tmp_path / "wrong.py"
    wrong.write_text(WRONG)
    with DockerLauncher(topology) as launcher:
        request = Request(strategy=Builtin(name="bucketed"), world_size=2, profile="quick", launcher="docker")
        report = engine.run(request, tmp_path / "right", launcher=launcher)
        assert report.verdict == "pass", report.summary
        assert len(mine(client, launcher)) == {"ranks": 4, "single": 2}[topology]
        request = request.model_copy(update={"strategy": engine_file(wrong)})
        report = engine.run(request, tmp_path / "wrong", launcher=launcher)
        assert report.verdict == "fail"
        assert {failure.cause for check in report.checks for failure in check.failures} >= {"missing_average"}
    assert mine(client, launcher) == []


def engine_file(path: Any) -> Any:
    from verifier.request import FromFile

    return FromFile(path=str(path))


def test_every_container_is_held_tightly(client, tmp_path):
    with DockerLauncher("ranks", limits=SMALL) as launcher:
        Ended(launcher, "network", tmp_path)
        for container in mine(client, launcher):
            host, config = container.attrs["HostConfig"], container.attrs["Config"]
            assert config["User"] == "1000:1000"
            assert host["ReadonlyRootfs"]
            assert host["CapDrop"] == ["ALL"]
            assert host["SecurityOpt"] == ["no-new-privileges:true"]
            assert host["Memory"] == host["MemorySwap"] > 0
            assert host["PidsLimit"] > 0
            assert host["NanoCpus"] > 0
            assert host["LogConfig"]["Type"] == "none"
            assert not host["Binds"]
            assert not container.attrs["Mounts"] or all(m["Type"] == "tmpfs" for m in container.attrs["Mounts"])
            assert host["NetworkMode"] == "none" or host["NetworkMode"].startswith("container:")
            assert {RUN, OWNER, UNTIL} <= set(config["Labels"])


def test_an_image_that_is_not_allowed_is_refused():
    with pytest.raises(ValueError, match="not allowed to run ranks"):
        DockerLauncher(image="somebody/elses")


def test_an_image_that_is_not_there_is_not_fetched(client, monkeypatch, tmp_path):
    monkeypatch.setenv("LOCKSTEP_RANK_IMAGES", "lockstep-not-built")
    with DockerLauncher() as launcher, pytest.raises(LaunchError, match="docker compose build rank"):
        Ended(launcher, "network", tmp_path)


def during(launcher: DockerLauncher, client: Any, folder: Any, act: Any, *, timeout_s: float = 30) -> Ended:
    """Run a slow strategy on two containers and ``act`` on rank 1's in the middle of it."""
    launcher._start(_slow())
    victim = mine(client, launcher, "rank-1")[0]
    timer = threading.Timer(1.5, act, [victim])
    timer.start()
    ended = Ended(launcher, "sleeps", folder, timeout_s=timeout_s)
    timer.join()
    return ended


def _slow() -> Any:
    from tests.docker.conftest import scenario

    return scenario("sleeps")


def test_a_rank_is_paused_cut_off_or_killed(client, tmp_path):
    def for_a_while(victim: Any) -> None:
        victim.pause()
        time.sleep(2)
        victim.unpause()

    with DockerLauncher("ranks", limits=SMALL) as launcher:
        ended = during(launcher, client, tmp_path / "while", for_a_while)
        assert [ended.outcome(rank)["status"] for rank in (0, 1)] == ["completed"] * 2, ended.members
        ended = during(launcher, client, tmp_path / "paused", lambda victim: victim.pause(), timeout_s=16)
        assert ended.members["rank 1"]["ended"].startswith("hung"), ended.members
        assert ended.members["rank 1"]["reason"] == "its container is paused"
        assert ended.members["rank 0"]["stack"]
        ended = during(launcher, client, tmp_path / "killed", lambda victim: victim.kill())
        assert "killed" in ended.members["rank 1"]["reason"]
        assert ended.members["rank 1"]["exit_code"] == 137
        assert ended.outcome(0)["status"] == "raised" or ended.members["rank 0"]["ended"].startswith("stopped")


OWNER_PROGRAM = """
import sys, pathlib
from tests.docker.conftest import Ended, SMALL
from verifier.launchers.docker import DockerLauncher
launcher = DockerLauncher("single", limits=SMALL)
print(launcher.run_id, flush=True)
Ended(launcher, sys.argv[1], pathlib.Path(sys.argv[2]), timeout_s=100)
"""


@pytest.mark.parametrize("paused", [False, True])
def test_what_a_killed_owner_leaves_is_removed(client, tmp_path, paused):
    command = [sys.executable, "-c", OWNER_PROGRAM, "hangs", str(tmp_path)]
    owner = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    assert owner.stdout is not None
    label = {"label": f"{RUN}={owner.stdout.readline().strip()}"}
    until(lambda: len(client.containers.list(filters=label)) == 2)
    time.sleep(8)
    assert containers.reap(client) == []  # its owner lives
    if paused:
        client.containers.list(filters=label)[0].pause()
    os.kill(owner.pid, signal.SIGKILL)
    owner.wait()
    if not paused:
        until(lambda: client.containers.list(filters=label) == [])  # nobody gives orders any more: it ends by itself
    containers.reap(client)
    assert client.containers.list(all=True, filters=label) == []


def until(true: Any, limit_s: float = 60) -> None:
    deadline = time.monotonic() + limit_s
    while not true():
        assert time.monotonic() < deadline
        time.sleep(0.2)


@pytest.mark.slow
def test_many_side_by_side_disturb_nobody(client, tmp_path):
    names = ["log_bomb", "disk_fill", "memory_bomb", "fork_bomb", "ends_everything", "network"]

    def run(number: int) -> str:
        with DockerLauncher("single", limits=SMALL) as launcher:
            if number % 2:
                Ended(launcher, names[number // 2 % len(names)], tmp_path / str(number), timeout_s=20)
                return "pass"
            request = Request(strategy=Builtin(name="naive"), world_size=2, profile="quick", launcher="docker")
            return engine.run(request, tmp_path / str(number), launcher=launcher).verdict

    with ThreadPoolExecutor(20) as threads:
        assert list(threads.map(run, range(20))) == ["pass"] * 20


def test_sent_source_goes_to_containers_by_itself(client):
    request = Request(strategy=source("network"), world_size=2)
    assert engine.launcher_for(request) == "docker"
    assert engine.plan(request)
