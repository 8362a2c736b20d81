"""The start of ranks: forked from a process with one thread, or, where that is not safe, started as new processes."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time

import pytest

from verifier.forkserver import family

SLEEPER = "import time\ndef wrap(model):\n    open('ready-%d' % __import__('os').getpid(), 'w')\n    time.sleep(1e6)\n"


def verify(*words: str, **environment: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "verifier", "verify", *words, "--check", "LS002"]  # reads one scenario
    return subprocess.run(command, env={**os.environ, **environment}, capture_output=True, text=True, timeout=180)


def test_a_thread_in_the_fork_server_is_refused(tmp_path):
    (tmp_path / "sitecustomize.py").write_text(
        "import threading, time\n"
        "threading.Thread(target=time.sleep, args=(999,), daemon=True, name='telemetry').start()\n"
    )
    result = verify("bucketed", "-n", "2", PYTHONPATH=str(tmp_path))
    assert result.returncode == 3
    assert "the fork server has 1 other thread(s): telemetry." in result.stderr
    assert "LOCKSTEP_START_METHOD=spawn" in result.stderr
    assert "Traceback" not in result.stderr


def test_spawned_ranks_give_the_same_verdicts():  # the correct one is tested below, with its long source
    wrong = verify("bucketed", "-n", "2", "--fault", "no_start_broadcast", LOCKSTEP_START_METHOD="spawn")
    assert wrong.returncode == 1, wrong.stdout + wrong.stderr
    assert "LS002" in wrong.stdout


@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_no_orphans_after_kill_9(tmp_path, method):
    (tmp_path / "sleeper.py").write_text(SLEEPER)
    owner = subprocess.Popen(
        [sys.executable, "-m", "verifier", "verify", "sleeper.py", "-n", "2", "--check", "LS002"],
        cwd=tmp_path,
        env={**os.environ, "LOCKSTEP_START_METHOD": method, "TMPDIR": str(tmp_path)},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    deadline = time.monotonic() + 90
    while len(list(tmp_path.glob("ready-*"))) < 2 and time.monotonic() < deadline:
        time.sleep(0.05)
    below = family.descendants(owner.pid)
    assert len(below) >= 3
    owner.send_signal(signal.SIGKILL)
    owner.wait()
    deadline = time.monotonic() + 10
    while (left := [p for p in below if alive(p)]) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert left == []


def alive(process: family.Process) -> bool:
    now = family.look_at(process.pid)
    return now is not None and now.state != "Z"


def test_spawned_ranks_take_source_longer_than_a_command_line(tmp_path):
    (tmp_path / "mine.py").write_text("#" * 300_000 + "\nfrom ddp_core.strategies.naive import wrap\n")
    code = (
        "import sys; from pathlib import Path\n"
        "from verifier import engine; from verifier.request import Request, Source\n"
        "files = {'mine.py': Path(sys.argv[1], 'mine.py').read_text()}\n"
        "strategy = Source(files=files, entrypoint='mine:wrap')\n"
        "request = Request(strategy=strategy, world_size=2, checks=('LS002',), launcher='local', trust=True, "
        "profile='quick')\n"
        "engine.run(request, Path(sys.argv[1], 'run')).assert_pass()\n"
    )
    environment = {**os.environ, "LOCKSTEP_START_METHOD": "spawn"}
    words = [sys.executable, "-c", code, str(tmp_path)]
    result = subprocess.run(words, env=environment, capture_output=True, text=True, timeout=180)
    assert result.returncode == 0, result.stderr
