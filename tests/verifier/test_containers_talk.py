"""The messages of a container, tested without one: bytes that a strategy might have made, and containers' owners."""

from __future__ import annotations

import json
import os
import random
import struct
import subprocess
import sys

import pytest

from verifier.containers import gpus, owners
from verifier.containers.framing import LONGEST_LINE, Frames, Untrue
from verifier.containers.limits import ContainerLimits
from verifier.containers.packing import carried
from verifier.errors import UsageError
from verifier.launcher import LaunchError
from verifier.request import FromFile
from verifier.scenario import Scenario


def piece(data, stream=1):
    return struct.pack(">BxxxL", stream, len(data)) + data


def line(**fields):
    return json.dumps(fields).encode() + b"\n"


def test_lines_and_files_come_whole_however_they_are_cut(tmp_path):
    content = bytes(range(256)) * 50
    said = line(ready=True) + line(member="rank 0", file="blobs.bin", size=len(content)) + content
    said += line(member="rank 0", file="board", size=0) + line(done=[])
    chance = random.Random(1)
    for _ in range(20):
        frames, found, left = Frames({"rank 0": tmp_path / "rank0"}, 2**20), [], said
        sent = piece(b"stderr\n", 2)
        while left:
            size = chance.randint(1, 5000)
            sent, left = sent + piece(left[:size]), left[size:]
        while sent:
            size = chance.randint(1, 3000)
            found += frames.feed(sent[:size])
            sent = sent[size:]
        assert found == [{"ready": True}, {"done": []}]
        assert (tmp_path / "rank0" / "blobs.bin").read_bytes() == content
        assert (tmp_path / "rank0" / "board").read_bytes() == b""


@pytest.mark.parametrize(
    ("said", "why"),
    [
        (line(member="rank 0", file="../../report.json", size=1), "nobody asked for"),
        (line(member="rank 0", file="/etc/passwd", size=1), "nobody asked for"),
        (line(member="../rank 0", file="board", size=1), "nobody asked for"),
        (line(member="rank 1", file="board", size=1), "nobody asked for"),
        (line(member="rank 0", file="board", size=-1), "nobody asked for"),
        (line(member="rank 0", file="board", size="9"), "nobody asked for"),
        (line(member="rank 0", file="blobs.bin", size=2**40) + b"x" * 2**21, "more than 1 MiB"),
        (b"x" * (LONGEST_LINE + 1), "more than"),
        (b"[" * 100_000 + b"\n", "no message"),
        (b"[1]\n", "no message"),
        (b"\xff\xfe\n", "no message"),
    ],
)
def test_what_our_code_would_not_send_is_not_taken(tmp_path, said, why):
    frames = Frames({"rank 0": tmp_path / "rank0"}, 2**20)
    with pytest.raises(Untrue, match=why):
        list(frames.feed(piece(said)))
    assert {path.name for path in tmp_path.rglob("*")} <= {"rank0", "blobs.bin"}


def test_a_line_without_an_end_is_not_waited_for(tmp_path):
    frames = Frames({}, 10 * LONGEST_LINE)
    said = piece(b"x" * 2**20) * 20
    with pytest.raises(Untrue, match="without an end"):
        list(frames.feed(said))


def test_an_owner_is_alive_until_its_process_is_gone():
    program = "from verifier.containers.owners import this_process; print(this_process(), flush=True); input()"
    process = subprocess.Popen([sys.executable, "-c", program], stdin=-1, stdout=-1, text=True)
    assert process.stdout is not None
    owner = process.stdout.readline().strip()
    assert owners.is_alive(owner) is True
    process.kill()
    process.wait()
    assert owners.is_alive(owner) is False
    assert owners.is_alive(owners.this_process()) is True
    assert owners.is_alive(owners.this_process().rpartition("/")[0] + "/1") is False  # the same pid, another start time
    assert owners.is_alive("process elsewhere/1/2") is None
    assert owners.is_alive("container abc/now") is None


def test_limits_come_from_the_environment(monkeypatch):
    monkeypatch.setenv("LOCKSTEP_RANK_MEMORY_MIB", "512")
    monkeypatch.setenv("LOCKSTEP_RANK_CPUS", "0.5")
    limits = ContainerLimits.from_environment()
    assert (limits.memory_mib, limits.cpus) == (512, 0.5)
    assert limits.of_several(3).memory_mib == 768
    monkeypatch.setenv("LOCKSTEP_RANK_PIDS", "none")
    with pytest.raises(UsageError, match="LOCKSTEP_RANK_PIDS is 'none'"):
        ContainerLimits.from_environment()


def test_a_file_travels_as_source_with_its_neighbours(tmp_path):
    (tmp_path / "mine.py").write_text("import other\nwrap = other.wrap\n")
    (tmp_path / "other.py").write_text("def wrap(model): return model\n")
    (tmp_path / "large.py").write_text("#" * 2**21)
    (tmp_path / "not-a-module.py").write_text("")
    asked = Scenario(
        name="s", situation="s", workload="exact", world_size=2, strategy=FromFile(path=str(tmp_path / "mine.py"))
    )
    strategy = carried(asked).strategy
    assert strategy.kind == "source"
    assert strategy.entrypoint == "mine:wrap"
    assert set(strategy.files) == {"mine.py", "other.py"}


def test_gpus_are_lent_from_a_pool_and_asked_for_in_the_engines_words(monkeypatch):
    class Engine:
        def __init__(self, **offers):
            self.info = lambda: offers

    monkeypatch.setenv("LOCKSTEP_GPUS", "0, GPU-b,2")
    one, other = gpus.Slots(), gpus.Slots()
    assert one.take(2) == ["0", "GPU-b"]
    assert other.take(1) == ["2"]
    one.give_back()
    assert one.take(1) == ["0"]
    for slots in (one, other):
        slots.give_back()
    assert gpus.request(Engine(), []) == []
    assert gpus.request(Engine(Runtimes={"nvidia": {}}), ["1"])[0]["DeviceIDs"] == ["1"]
    assert gpus.request(Engine(Runtimes={}, CDISpecDirs=["/etc/cdi"]), ["1"])[0]["DeviceIDs"] == ["nvidia.com/gpu=1"]
    with pytest.raises(LaunchError, match="offers no GPU"):
        gpus.request(Engine(Runtimes={"runc": {}}), ["1"])
    monkeypatch.delenv("LOCKSTEP_GPUS")
    with pytest.raises(LaunchError, match="LOCKSTEP_GPUS"):
        one.take(1)


def test_the_launcher_says_what_is_missing_without_an_engine(command, monkeypatch):
    monkeypatch.setenv("DOCKER_HOST", f"unix:///tmp/no-engine-{os.getpid()}.sock")
    done = command("verify", "naive", "--launcher", "docker", "--world-size", "2")
    assert done.returncode == 3
    assert "no container engine answers" in done.stderr
    assert "Traceback" not in done.stderr
