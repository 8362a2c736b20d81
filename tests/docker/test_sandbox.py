"""Each limit, tried from inside by a strategy of ``hostile/`` that wants past it."""

from __future__ import annotations

import socket
import threading
import time
from pathlib import Path

import pytest

from tests.docker.conftest import SMALL, Ended
from verifier.containers.framing import FILES
from verifier.launchers.docker import DockerLauncher


def test_there_is_no_network_but_the_loopback(launcher, tmp_path):
    found = Ended(launcher, "network", tmp_path).found()
    assert found == {"interfaces": ["lo"], "reached": [], "routes": 0}


def test_nothing_of_the_host_is_there_or_can_be_written(launcher, tmp_path):
    found = Ended(launcher, "host_files", tmp_path).found()
    assert found["wrote"] == []
    assert set(found["read"]) <= {"/proc/1/environ", "/proc/1/root/etc/passwd"}  # its own container's
    assert found["sockets"] == []
    assert found["environment"] == []
    mounted = [place for place in found["mounted"] if not place.startswith(("/proc", "/sys", "/dev"))]
    assert mounted == []


def test_nobody_becomes_root(launcher, tmp_path):
    found = Ended(launcher, "becomes_root", tmp_path).found()
    assert found["ids"] == [1000, 1000, []] or found["ids"] == [1000, 1000, [1000]]
    assert found["worked"] == []
    assert found["setuid files"] == []
    assert {int(found[name], 16) for name in ("CapEff", "CapPrm", "CapBnd")} == {0}
    assert found["NoNewPrivs"] == "1"
    assert found["Seccomp"] == "2"


def test_a_fork_bomb_stays_in_its_container(launcher, tmp_path):
    before = _processes()
    ended = Ended(launcher, "fork_bomb", tmp_path, timeout_s=8)
    assert ended.members["rank 0"]["ended"].startswith(("stopped", "hung"))
    assert ended.reference_is_whole()
    assert _processes() < before + SMALL.pids


def test_a_memory_bomb_is_ended_and_named(launcher, tmp_path):
    begun = time.monotonic()
    ended = Ended(launcher, "memory_bomb", tmp_path, timeout_s=100)  # a busy machine fills a gigabyte slowly
    told = " ".join(str(ended.members[f"rank {rank}"]["reason"]) for rank in (0, 1))
    assert "memory" in told
    assert time.monotonic() - begun < 120
    assert ended.reference_is_whole()


def test_a_log_bomb_is_cut(launcher, tmp_path):
    ended = Ended(launcher, "log_bomb", tmp_path, timeout_s=60)
    assert (tmp_path / "subject" / "rank0" / "output.txt").stat().st_size < 2 * 2**20
    assert "left out" in (tmp_path / "subject" / "rank0" / "output.txt").read_text()
    assert len(ended.members["rank 0"]["output"]) <= 8000
    assert ended.outcome(0)["status"] == "completed"


def test_a_full_disk_is_its_own(launcher, tmp_path):
    found = Ended(launcher, "disk_fill", tmp_path).found()
    assert found["/tmp"][0] <= SMALL.scratch_mib
    assert found["/dev/shm"][0] <= SMALL.shared_mib * 2
    assert found["/tmp"][1] == found["/dev/shm"][1] == "No space left on device"


def test_links_are_not_followed(launcher, tmp_path):
    ended = Ended(launcher, "links", tmp_path)
    left = [path for path in tmp_path.rglob("*") if path.is_file() or path.is_symlink()]
    assert not any(path.is_symlink() for path in left)
    assert not any(b"root:" in path.read_bytes() for path in left)
    assert not any("root:" in str(member) for member in ended.members.values())


def test_a_recording_of_ten_gigabytes_is_not_taken(launcher, tmp_path):
    assert Ended(launcher, "huge_recording", tmp_path).found() == []
    assert sum(path.stat().st_size for path in tmp_path.rglob("*") if path.is_file()) < 4 * SMALL.recording_mib * 2**20


def test_lies_reach_nobody(launcher, tmp_path):
    ended = Ended(launcher, "lies", tmp_path)
    assert {ended.members[name]["exit_code"] for name in ("rank 0", "reference")} == {0}
    names = {path.name for path in tmp_path.rglob("*") if path.is_file()}
    assert names <= {*FILES, "scenario.json"}
    assert ended.reference_is_whole()


@pytest.mark.parametrize("name", ["ends_everything", "stops_its_server"])
def test_the_first_process_of_a_container_cannot_be_ended_from_inside(launcher, tmp_path, name):
    ended = Ended(launcher, name, tmp_path / "first", timeout_s=12)
    ranks = [ended.members[f"rank {rank}"] for rank in (0, 1)]
    assert any(rank["ended"] or rank["signal"] == "SIGKILL" for rank in ranks), ranks
    assert all(rank["exit_code"] is not None for rank in ranks)  # told by that process
    assert ended.reference_is_whole()
    after = Ended(launcher, "log_bomb", tmp_path / "second")
    assert after.outcome(1)["status"] == "completed"


def test_a_hang_shows_every_stack(launcher, tmp_path):
    ended = Ended(launcher, "hangs", tmp_path, timeout_s=12)
    assert ended.members["rank 1"]["ended"].startswith("hung: nothing happened for")
    assert "hangs.py" in ended.members["rank 1"]["stack"]
    assert ended.members["rank 0"]["ended"].startswith("hung")
    assert ended.members["reference"]["ended"] is None


def test_runs_do_not_see_each_other(launcher, client, tmp_path):
    found: dict[str, list[object]] = {}

    def run(name: str, launcher: DockerLauncher) -> None:
        ended = Ended(launcher, "looks_for_others", tmp_path / name)
        found[name] = [ended.found(rank) for rank in (0, 1)]

    with DockerLauncher("single", limits=SMALL) as other:
        both = [threading.Thread(target=run, args=each) for each in (("one", launcher), ("other", other))]
        for thread in both:
            thread.start()
        for thread in both:
            thread.join()
    assert [entry["others"] for name in ("one", "other") for entry in found[name]] == [[], [], [], []]
    assert socket.gethostname() not in str(found)


def _processes() -> int:
    """All of this machine's: one that got out of its container counts, too."""
    return len([path for path in Path("/proc").iterdir() if path.name.isdigit()])
