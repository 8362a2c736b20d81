"""Ranks as processes of this machine, forked from a server that has loaded torch already.

Special here: the server starts when the launcher is made, in parallel with whatever its owner does next, and serves any
number of scenarios. This module imports almost nothing, so that the launcher is made early. If the owner dies, by
whatever means, server and ranks die with it. If a strategy ends or stops the server, that is reported as the strategy's
doing; processes that it left are found by a mark in their environment and ended, and the next scenario gets a new
server.
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import socket
import subprocess
import sys
import time
import uuid
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from verifier.launcher import LaunchError

if TYPE_CHECKING:
    from verifier.devices import Device
    from verifier.forkserver.limits import Limits
    from verifier.scenario import Scenario

# One thread per process: ranks share cores, and a process that has started OpenMP threads cannot be forked safely.
_ENVIRONMENT = {
    "OMP_NUM_THREADS": "1",
    "MKL_NUM_THREADS": "1",
    "GLOO_SOCKET_IFNAME": "lo0" if sys.platform == "darwin" else "lo",
    "PYTHONUNBUFFERED": "1",
}
MARK = "LOCKSTEP_SERVER"
EXIT_CONFIG = 78  # the server's exit code if it refuses to fork; its last words say why
CONTINUE_EVERY_S = 2.0
SERVER_GRACE_S = 60.0  # beyond a job's own time: loading torch before the first, ending processes after the last


class LocalLauncher:
    """Owns one fork server."""

    def __init__(self, limits: Limits | None = None, device: Device = "cpu") -> None:
        """``device`` is that of the first scenario; a scenario on the other device gets another server."""
        self._limits = limits
        self._closed = False
        self._start(device)

    def _start(self, device: Device) -> None:
        """Start a server. GPUs are hidden from it if its ranks train on the CPU."""
        self._device, hidden = device, {"CUDA_VISIBLE_DEVICES": ""} if device == "cpu" else {}
        self._mark = f"{MARK}={uuid.uuid4().hex}"
        name, _, value = self._mark.partition("=")
        ours, theirs = socket.socketpair()
        with theirs:
            self._server = subprocess.Popen(
                [sys.executable, "-m", "verifier.forkserver", str(theirs.fileno())],
                pass_fds=[theirs.fileno()],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.PIPE,
                env={**os.environ, **_ENVIRONMENT, **hidden, name: value},
                start_new_session=True,  # Ctrl-C reaches only the owner, which then closes the socket
            )
        self._socket = ours
        self._busy = False

    def run(self, scenario: Scenario, folder: Path, timeout_s: float) -> dict[str, Any]:
        """As ``Launcher.run``. A server that a strategy killed or stopped is part of how its ranks ended."""
        return self.run_together([scenario], [folder], timeout_s)[0]

    def run_together(self, scenarios: list[Scenario], folders: list[Path], timeout_s: float) -> list[dict[str, Any]]:
        """Run ``scenarios``, saved in ``folders``, one after the other in the same processes (``verifier.run.acts``).

        Returns the results, as of ``run``, up to the first scenario that not all members came through.
        """
        import tempfile

        from verifier.devices import require_gpus
        from verifier.forkserver.limits import Limits

        if scenarios[0].device == "cuda":
            require_gpus()
        if scenarios[0].device != self._device and not self._closed:
            self._end_server()
            self._start(scenarios[0].device)
        limits = self._limits or Limits.from_environment()
        scratch = tempfile.TemporaryDirectory(prefix="lockstep-ranks-", ignore_cleanup_errors=True)
        with scratch as name:  # the server removes it, too, because either may be killed
            places = [str(folder.absolute()) for folder in folders]
            order = {"folders": places, "timeout_s": timeout_s, "limits": limits._asdict(), "scratch": name}
            return self._carry_out(order, scenarios[0].world_size)

    def _carry_out(self, order: dict[str, Any], world_size: int) -> list[dict[str, Any]]:
        if self._server.poll() is not None and self._busy and not self._closed:
            self._start(self._device)
        self._busy = not self._closed
        line = b""
        with contextlib.suppress(OSError):
            self._socket.sendall(json.dumps(order).encode() + b"\n")
            line = self._read_line(time.monotonic() + order["timeout_s"] + SERVER_GRACE_S)
        if not line.endswith(b"\n"):
            return [self._lost(world_size)]
        self._busy = False
        answer: dict[str, Any] = json.loads(line)
        return [{**act, "limits": answer["limits"]} for act in answer["acts"]]

    def _read_line(self, deadline: float) -> bytes:
        """The server's answer; not a whole line if it ended or did not answer in time."""
        line = bytearray()
        while not line.endswith(b"\n"):
            ready, _, _ = select.select([self._socket], [], [], CONTINUE_EVERY_S)
            if not ready and time.monotonic() < deadline:
                self._server.send_signal(signal.SIGCONT)  # a strategy may have stopped it
                continue
            part = self._socket.recv(1 << 16) if ready else b""
            if not part:
                break
            line += part
        return bytes(line)

    def _lost(self, world_size: int) -> dict[str, Any]:
        """End what is left of a server that is gone or does not answer, and return what its members then count as.

        Raises LaunchError if the server ended by itself or was closed, which no strategy has done.
        """
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._server.wait(1)
        if self._closed:
            raise LaunchError("the launcher was closed while it was used")
        code = self._server.poll()
        if code is not None and code >= 0:
            if code == EXIT_CONFIG:
                raise LaunchError(self._last_words())
            raise LaunchError(f"the fork server ended unexpectedly:\n{self._last_words()}")
        how = f"was killed by {signal.Signals(-code).name}" if code else "stopped answering"
        self._end_server()
        names = [*(f"rank {rank}" for rank in range(world_size)), "reference"]
        nothing = dict.fromkeys(("exit_code", "signal", "reason", "stack", "output"))
        ended = f"stopped: the process that watches over the ranks {how} while they ran"
        return {"members": [{**nothing, "name": name, "ended": ended, "board": ""} for name in names], "lost": True}

    def close(self) -> None:
        """End everything. Another thread that uses this launcher gets a LaunchError."""
        self._closed = True
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)
        if not self._busy:  # no ranks: nothing to wait for
            self._server.kill()
            self._server.wait()
        else:
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._server.wait(15)  # it ends its ranks, and then itself
        self._end_server()

    def _end_server(self) -> None:
        """End the server, with which the kernel ends its ranks, and any other process that it left."""
        clean = self._server.poll() == 0 or not self._busy
        if self._server.poll() is None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self._server.pid, signal.SIGKILL)
            self._server.wait()
        if not clean:
            from verifier.forkserver.family import end_marked

            end_marked(self._mark)
        self._socket.close()
        if self._server.stderr is not None:
            self._server.stderr.close()

    def _last_words(self) -> str:
        if self._server.stderr is None:
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
