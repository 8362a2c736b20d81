"""Ranks under torchrun, one job for each scenario: what a cluster does, on this machine.

Special here: it is slow, because every rank starts its own Python and imports torch. It serves to test a strategy under
the launcher that it will run under, and to write the folder that ``python -m verifier.worker`` needs on a cluster.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from verifier.forkserver.family import descendants
from verifier.launcher import STACK_SIGNAL

if TYPE_CHECKING:
    from verifier.scenario import Scenario

_ENVIRONMENT = {"OMP_NUM_THREADS": "1", "PYTHONUNBUFFERED": "1"}
_TAIL_BYTES = 4000


class TorchrunLauncher:
    """Owns at most one torchrun at a time."""

    def __init__(self) -> None:
        self._job: subprocess.Popen[bytes] | None = None

    def run(self, scenario: Scenario, folder: Path, timeout_s: float) -> dict[str, Any]:
        words = ["-m", "torch.distributed.run", "--nproc-per-node", str(scenario.world_size)]
        words += ["--rdzv-backend", "c10d", "--rdzv-endpoint", "localhost:0"]
        words += ["-m", "verifier.worker", "--scenario", str(folder / "scenario.json"), "--out", str(folder)]
        with (folder / "torchrun.txt").open("wb") as output:
            self._job = subprocess.Popen(
                [sys.executable, *words],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                env={**os.environ, **_ENVIRONMENT},
                start_new_session=True,
            )
            try:
                ended = f"stopped: torchrun ended with exit code {self._job.wait(timeout_s)}"
            except subprocess.TimeoutExpired:
                ended = f"hung: it had not ended after {timeout_s:.0f} s"
                _ask_for_stacks(scenario, folder)
            finally:
                self.close()
        names = [*(f"rank {rank}" for rank in range(scenario.world_size)), "reference"]
        return {"members": [_describe(name, folder, ended) for name in names]}

    def close(self) -> None:
        if self._job is not None:
            _kill(self._job)
            self._job = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def _kill(job: subprocess.Popen[bytes]) -> None:
    """End torchrun, its ranks (each in a session that torchrun made) and the reference."""
    family = [job.pid, *(process.pid for process in descendants(job.pid))]
    for pid in family if job.poll() is None else ():
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    job.wait()


def _ask_for_stacks(scenario: Scenario, folder: Path) -> None:
    from verifier import reading

    for rank in reading.read(folder).ranks:
        if (pid := rank.notes.get("pid")) is not None and not rank.completed:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, STACK_SIGNAL)
    time.sleep(0.3)


def _describe(name: str, folder: Path, ended: str | None) -> dict[str, Any]:
    place = folder / ("reference/rank0" if name == "reference" else f"subject/rank{name.removeprefix('rank ')}")
    journal = place / "journal.jsonl"
    done = journal.exists() and b'"status": "' in journal.read_bytes()[-4000:]
    return {
        "name": name,
        "ended": None if done else ended,
        "exit_code": 0 if done else None,
        "signal": None,
        "board": _text(place / "board").rstrip("\0"),
        "stack": _text(place / "stack.txt") or None,
        "output": None if done else _text(folder / "torchrun.txt")[-_TAIL_BYTES:] or None,
    }


def _text(path: Path) -> str:
    return path.read_text(encoding="utf-8", errors="replace") if path.exists() else ""


LAUNCHER = TorchrunLauncher
