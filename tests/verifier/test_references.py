"""The single process runs once for all strategies compared with it; none can change it for another."""

from __future__ import annotations

import json

import pytest

from verifier.engine import start_launcher
from verifier.launchers.local import LocalLauncher
from verifier.request import Builtin, Request
from verifier.situation import plan

FORGER = """
import json, os, time
from pathlib import Path
import xxhash
import torch.distributed as dist
from ddp_core.strategies.naive import wrap as right

def forge(folder):
    while b'"outcome"' not in (folder / "journal.jsonl").read_bytes():
        time.sleep(0.01)
    time.sleep(0.05)
    blobs = bytearray((folder / "blobs.bin").read_bytes())
    blobs[-3] ^= 64  # the last weight
    *lines, last, _ = (folder / "journal.jsonl").read_bytes().split(b"\\n")
    last = json.loads(last)
    last["seals"]["blobs"][1] = xxhash.xxh3_64_hexdigest(bytes(blobs))
    (folder / "blobs.bin").write_bytes(blobs)
    (folder / "journal.jsonl").write_bytes(b"\\n".join([*lines, json.dumps(last).encode(), b""]))

def wrap(model):
    if dist.get_rank() == 0:
        for folder in Path(OUT).glob("scenarios/*/reference/rank0"):
            if folder.parts[-3] == "plain":
                forge(folder)
    return right(model)
"""


@pytest.fixture
def launcher():
    with start_launcher() as own:
        yield own


def run(launcher: LocalLauncher, out, strategy="naive", seed=0, **fields):
    request = Request(strategy=Builtin(name=strategy), world_size=2, profile="quick", seed=seed, **fields)
    (scenario,) = [scenario for scenario in plan(request) if scenario.name == "plain"]
    scenario.save(out)
    return launcher.run(scenario, out, 60)


def written(out, name):
    return (out / "reference" / "rank0" / name).read_bytes()


def test_it_is_there_again_without_a_process(launcher, tmp_path):
    first, second = (run(launcher, tmp_path / name, name) for name in ("naive", "bucketed"))
    assert [member["name"] for member in second["members"]] == ["rank 0", "rank 1", "reference"]
    assert {member["exit_code"] for ended in (first, second) for member in ended["members"]} == {0}
    for name in ("journal.jsonl", "blobs.bin"):
        assert written(tmp_path / "naive", name) == written(tmp_path / "bucketed", name)
    assert (tmp_path / "naive" / "reference" / "rank0" / "output.txt").exists()
    assert not (tmp_path / "bucketed" / "reference" / "rank0" / "output.txt").exists()


def test_another_question_has_another_reference(launcher, tmp_path):
    for seed in (0, 1):
        run(launcher, tmp_path / str(seed), seed=seed)
    assert written(tmp_path / "0", "blobs.bin") != written(tmp_path / "1", "blobs.bin")


PIPES = """
import os
from pathlib import Path
import torch.distributed as dist
from ddp_core.strategies.naive import wrap as right

def wrap(model):
    if dist.get_rank() == 0:
        for file in Path(OUT).glob("scenarios/*/reference/rank0/*.*"):
            file.unlink()
            os.mkfifo(file)
    return right(model)
"""


def test_one_that_became_a_pipe_keeps_nobody_waiting(lockstep, launcher, tmp_path):
    out = tmp_path / "pipes"
    (tmp_path / "pipes.py").write_text(f"OUT = {str(out)!r}\n{PIPES}")
    lockstep.launcher = launcher
    assert lockstep.verify(str(tmp_path / "pipes.py"), out=out, world_size=2, timeout_s=60).verdict == "unknown"
    lockstep.verify("naive", out=tmp_path / "honest", world_size=2).assert_pass()


def test_a_forged_one_is_not_kept(lockstep, launcher, tmp_path):
    out = tmp_path / "forged"
    (tmp_path / "forger.py").write_text(f"OUT = {str(out)!r}\n{FORGER}")
    lockstep.launcher = launcher
    forged = lockstep.verify(str(tmp_path / "forger.py"), out=out, world_size=2)
    assert forged.verdict != "pass"  # it affects only its own verdict
    lockstep.verify("naive", out=tmp_path / "honest", world_size=2).assert_pass()
    journal = written(out / "scenarios" / "plain", "journal.jsonl").splitlines()
    assert json.loads(journal[-1])["status"] == "completed"
