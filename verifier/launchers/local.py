"""Ranks as processes of this machine, forked from a server that has torch loaded already.

Special here: the server starts when the launcher is made, in parallel with whatever its owner does next, and stays
for as many scenarios as the owner likes. This module imports next to nothing, so that "made" is early. If the owner
dies, by whatever means, server and ranks die with it.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from verifier.launcher import LaunchError

if TYPE_CHECKING:
    from verifier.scenario import Scenario

# One thread per process: ranks share cores, and a process that has started OpenMP threads cannot be forked safely.
_ENVIRONMENT = {
    "OMP_NUM_THREADS": "1",
    "MKL_NUM_THREADS": "1",
    "GLOO_SOCKET_IFNAME": "lo0" if sys.platform == "darwin" else "lo",
    "PYTHONUNBUFFERED": "1",
}


class LocalLauncher:
    """Owns one fork server."""

    def __init__(self) -> None:
        ours, theirs = socket.socketpair()
        with theirs:
            self._server = subprocess.Popen(
                [sys.executable, "-m", "verifier.forkserver", str(theirs.fileno())],
                pass_fds=[theirs.fileno()],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.PIPE,
                env={**os.environ, **_ENVIRONMENT},
                start_new_session=True,  # Ctrl-C reaches the owner alone, who then closes the socket
            )
        self._socket = ours
        self._busy = False
        self._lines = ours.makefile("rw", encoding="utf-8", newline="\n")

    def run(self, scenario: Scenario, folder: Path, timeout_s: float) -> dict[str, Any]:
        order = {"folder": str(folder.absolute()), "timeout_s": timeout_s}
        self._busy = True
        try:
            self._lines.write(json.dumps(order) + "\n")
            self._lines.flush()
            line = self._lines.readline()
        except (OSError, ValueError):
            line = ""
        if not line:
            raise LaunchError(f"the fork server ended unexpectedly:\n{self._last_words()}")
        self._busy = False
        answer: dict[str, Any] = json.loads(line)
        return answer

    def close(self) -> None:
        with contextlib.suppress(OSError, ValueError):
            self._socket.shutdown(socket.SHUT_RDWR)
        with contextlib.suppress(OSError, ValueError):
            self._lines.close()
        self._socket.close()
        if not self._busy:  # no ranks: nothing to wait for
            self._server.kill()
        try:
            self._server.wait(5)
        except subprocess.TimeoutExpired:
            os.killpg(self._server.pid, signal.SIGKILL)  # its ranks follow: they asked the kernel for that
            self._server.wait()
        if self._server.stderr is not None:
            self._server.stderr.close()

    def _last_words(self) -> str:
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._server.wait(5)
        if self._server.poll() is None or self._server.stderr is None:
            return "it gave no reason"
        text = self._server.stderr.read().decode("utf-8", errors="replace").strip()
        return text or f"it gave no reason (exit code {self._server.returncode})"

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


LAUNCHER = LocalLauncher
