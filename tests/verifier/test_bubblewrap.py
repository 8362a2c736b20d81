"""The limits of the bubblewrap sandbox, tried from inside by the same hostile strategies as those of containers."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from tests.conftest import ROOT
from tests.docker.conftest import SMALL, Ended
from verifier import engine
from verifier.errors import UsageError
from verifier.forkserver import family
from verifier.launchers import bubblewrap
from verifier.launchers.bubblewrap import BubblewrapLauncher
from verifier.request import Request, Source

os.environ.setdefault(bubblewrap.AS_ROOT, "1")  # CI runs as root, in a machine of its own
pytestmark = pytest.mark.skipif(not bubblewrap.available(), reason="bubblewrap cannot make a sandbox here")


@pytest.fixture(scope="module")
def launcher():
    with BubblewrapLauncher(SMALL) as launcher:
        yield launcher


def test_there_is_no_network_but_the_loopback(launcher, tmp_path):
    assert Ended(launcher, "network", tmp_path).found() == {"interfaces": ["lo"], "reached": [], "routes": 0}


def test_nothing_of_the_host_is_there_or_can_be_written(launcher, tmp_path):
    found = Ended(launcher, "host_files", tmp_path).found()
    assert found["wrote"] == []
    assert set(found["read"]) <= {"/proc/1/environ"}  # that of its own sandbox
    assert found["sockets"] == []
    assert found["environment"] == []


def test_nobody_becomes_root(launcher, tmp_path):
    found = Ended(launcher, "becomes_root", tmp_path).found()
    assert found["ids"][:2] == [1000, 1000]
    assert found["worked"] == []
    assert {int(found[name], 16) for name in ("CapEff", "CapPrm", "CapBnd")} == {0}
    assert found["NoNewPrivs"] == "1"


def test_a_fork_bomb_ends_with_its_sandbox(launcher, tmp_path):
    ended = Ended(launcher, "fork_bomb", tmp_path, timeout_s=8)
    assert "processes" in str(ended.members["rank 0"]["reason"]) or ended.members["rank 0"]["ended"]
    assert ended.reference_is_whole()
    assert len(family.descendants(os.getpid())) < 40


def test_a_memory_bomb_is_ended_and_named(launcher, tmp_path):
    ended = Ended(launcher, "memory_bomb", tmp_path, timeout_s=30)
    told = " ".join(str(ended.members[f"rank {rank}"]["reason"]) for rank in (0, 1))
    raised = " ".join(str(ended.outcome(rank).get("detail")) for rank in (0, 1))
    assert "memory" in (told + raised).lower()
    assert ended.reference_is_whole()


def test_a_log_bomb_is_cut(launcher, tmp_path):
    ended = Ended(launcher, "log_bomb", tmp_path, timeout_s=60)
    assert (tmp_path / "subject" / "rank0" / "output.txt").stat().st_size < 2 * 2**20
    assert ended.outcome(0)["status"] == "completed"


def test_a_full_disk_is_its_own(launcher, tmp_path):
    found = Ended(launcher, "disk_fill", tmp_path).found()
    assert found["/tmp"][0] <= SMALL.scratch_mib
    assert found["/dev/shm"][0] <= SMALL.shared_mib * 2
    assert found["/tmp"][1] == found["/dev/shm"][1] == "No space left on device"


def test_links_are_not_followed(launcher, tmp_path):
    Ended(launcher, "links", tmp_path)
    left = [path for path in tmp_path.rglob("*") if path.is_file() or path.is_symlink()]
    assert not any(path.is_symlink() for path in left)
    assert not any(b"root:" in path.read_bytes() for path in left)


def test_a_recording_of_ten_gigabytes_is_not_taken(launcher, tmp_path):
    assert Ended(launcher, "huge_recording", tmp_path).found() == []
    assert sum(path.stat().st_size for path in tmp_path.rglob("*") if path.is_file()) < 4 * SMALL.recording_mib * 2**20


@pytest.mark.parametrize("name", ["ends_everything", "stops_its_server"])
def test_the_first_process_cannot_be_ended_from_inside(launcher, tmp_path, name):
    ended = Ended(launcher, name, tmp_path / "first", timeout_s=12)
    assert all(ended.members[f"rank {rank}"]["exit_code"] is not None for rank in (0, 1))  # it reported both
    assert ended.reference_is_whole()
    assert Ended(launcher, "log_bomb", tmp_path / "second").outcome(1)["status"] == "completed"


def test_a_hang_shows_every_stack(launcher, tmp_path):
    ended = Ended(launcher, "hangs", tmp_path, timeout_s=12)
    assert ended.members["rank 1"]["ended"].startswith("hung: nothing happened for")
    assert "hangs.py" in ended.members["rank 1"]["stack"]


def test_runs_do_not_see_each_other(launcher, tmp_path):
    found: dict[str, list[object]] = {}

    def run(name: str, launcher: BubblewrapLauncher) -> None:
        ended = Ended(launcher, "looks_for_others", tmp_path / name)
        found[name] = [ended.found(rank) for rank in (0, 1)]

    with BubblewrapLauncher(SMALL) as other:
        both = [threading.Thread(target=run, args=each) for each in (("one", launcher), ("other", other))]
        for thread in both:
            thread.start()
        for thread in both:
            thread.join()
    assert [entry["others"] for name in ("one", "other") for entry in found[name]] == [[], [], [], []]


def test_it_dies_with_its_owner(tmp_path):
    code = (
        "import sys; from tests.docker.conftest import Ended, SMALL; from pathlib import Path\n"
        "from verifier.launchers.bubblewrap import BubblewrapLauncher\n"
        "with BubblewrapLauncher(SMALL) as launcher:\n"
        "    Ended(launcher, 'sleeps', Path(sys.argv[1]))\n"
    )
    owner = subprocess.Popen([sys.executable, "-c", code, str(tmp_path)], cwd=ROOT)
    deadline = time.monotonic() + 60
    below: list[family.Process] = []
    while len(below) < 6 and time.monotonic() < deadline:  # two sandboxes, their first processes, ranks
        time.sleep(0.2)
        below = family.descendants(owner.pid)
    owner.send_signal(signal.SIGKILL)
    owner.wait()
    deadline = time.monotonic() + 10
    while any(Path(f"/proc/{process.pid}").exists() for process in below) and time.monotonic() < deadline:
        time.sleep(0.1)
    assert [process for process in below if Path(f"/proc/{process.pid}").exists()] == []


def test_root_is_refused(monkeypatch):
    monkeypatch.delenv(bubblewrap.AS_ROOT)
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    assert not bubblewrap.available.__wrapped__()


def test_gpus_are_not_handed_out(launcher, tmp_path):
    request = Request(strategy=Source(files={"a.py": "wrap = None"}, entrypoint="a:wrap"), launcher="bubblewrap")
    asked = engine.plan(request)[0].model_copy(update={"device": "cuda"})
    with pytest.raises(UsageError, match="bubblewrap hands out no GPUs"):
        launcher.run(asked, tmp_path, 10)


def test_a_verdict_is_the_same_as_outside(tmp_path):
    files = {"mine.py": (ROOT / "examples" / "my_ddp.py").read_text()}
    request = Request(
        strategy=Source(files=files, entrypoint="mine:wrap"), world_size=2, profile="quick", launcher="bubblewrap"
    )
    report = engine.run(request, tmp_path)
    report.assert_pass()
    assert report.request["launcher"] == "bubblewrap"
