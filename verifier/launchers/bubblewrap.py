"""Ranks in a bubblewrap sandbox: isolated by the kernel's namespaces, without a container engine and without root.

Special here: the two sides are those of the docker launcher (``verifier.contained`` inside, ``containers.job`` outside)
around another kind of box: all ranks in one, the reference in a second that no strategy's code enters. Of the host
they see Python, this package and the libraries, read-only, and no home, no network, no other process. There are no
control groups here: memory and processes are watched from inside the box and not capped by the kernel.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from verifier.containers.framing import Frames
from verifier.containers.job import Group, Job
from verifier.containers.limits import ContainerLimits
from verifier.containers.packing import carried
from verifier.errors import UsageError
from verifier.launcher import LaunchError, place_of

if TYPE_CHECKING:
    from verifier.scenario import Scenario

PROGRAM = "bwrap"
AS_ROOT = "LOCKSTEP_BUBBLEWRAP_AS_ROOT"
PORT = 29_500
PACKAGES = ("verifier", "ddp_core")
SYSTEM = ("/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64")
SETTINGS = ("/etc/ld.so.cache", "/etc/alternatives", "/sys/devices/system/cpu")
_ENVIRONMENT = {
    "PATH": "/usr/local/bin:/usr/bin:/bin",
    "HOME": "/tmp",
    "USER": "lockstep",
    "LANG": "C.UTF-8",
    "PYTHONPATH": "/lockstep",
    "PYTHONDONTWRITEBYTECODE": "1",
    "PYTHONUNBUFFERED": "1",
    "OMP_NUM_THREADS": "1",
    "MKL_NUM_THREADS": "1",
    "GLOO_SOCKET_IFNAME": "lo",
}


@cache
def available() -> bool:
    """Return whether bubblewrap is installed and this kernel lets this user make such a box.

    False for root: user 1000 of the box would be root to the kernel in every check that needs no capability.
    """
    if shutil.which(PROGRAM) is None or (os.geteuid() == 0 and not os.environ.get(AS_ROOT)):
        return False
    command = [*_box(ContainerLimits()), "/bin/true"]
    try:
        return subprocess.run(command, capture_output=True, timeout=20, check=False).returncode == 0
    except (OSError, subprocess.TimeoutExpired):
        return False


class BubblewrapLauncher:
    """Two boxes, kept for all scenarios of one world size."""

    def __init__(self, limits: ContainerLimits | None = None) -> None:
        if not available():
            raise LaunchError(
                "bubblewrap (bwrap 0.8 or newer) is not installed here, or this user may not make namespaces. "
                "Install it (apt-get install bubblewrap), or choose another launcher: lockstep list launchers. Root is "
                f"refused, since a sandbox of root's is none against the kernel; {AS_ROOT}=1 takes that risk."
            )
        self._limits = limits or ContainerLimits.from_environment()
        self._groups: list[Group] = []
        self._boxes: dict[str, _Box] = {}
        self._port = PORT

    def run(self, scenario: Scenario, folder: Path, timeout_s: float) -> dict[str, Any]:
        """As ``Launcher.run``."""
        if scenario.device == "cuda":
            raise UsageError("bubblewrap hands out no GPUs. Choose --launcher docker, or --device cpu.")
        self._start(scenario.world_size)
        self._port += 1  # the last scenario's port may not be free yet
        places = {name: folder / place_of(name) for group in self._groups for name in group.members}
        inside = {
            "memory_gib": self._limits.memory_mib / 1024,
            "disk_gib": self._limits.recording_mib / 1024,
            "output_mib": self._limits.output_mib,
            "num_processes": self._limits.of_several(scenario.world_size).pids,
            "most": self._limits.recording_mib * 2**20,
        }
        with contextlib.closing(Job(self._groups, self._why_lost)) as job:
            answer = job.run(carried(scenario), places, timeout_s, inside, self._port)
        answer["environment"]["launcher"] = "bubblewrap"
        if answer["lost"]:
            self._remove()
        return answer

    def _start(self, world_size: int) -> None:
        ranks = [f"rank {rank}" for rank in range(world_size)]
        if self._groups and self._groups[0].members == ranks:
            return
        self._remove()
        for members in (ranks, ["reference"]):
            box = _Box(self._limits.of_several(len(members)))
            self._boxes[box.name] = box
            self._groups.append(Group(members, box.name, box.socket, frames=Frames({}, 2**20, framed=False)))
        try:
            with contextlib.closing(Job(self._groups, self._why_lost)) as job:
                job.get_ready()
        except LaunchError:
            self._remove()
            raise

    def _why_lost(self, group: Group) -> dict[str, Any]:
        box = self._boxes[group.container]
        with contextlib.suppress(subprocess.TimeoutExpired):
            box.process.wait(1)
        code = box.process.poll()
        if code is None:
            return {"reason": group.lost and f"its sandbox was ended: {group.lost}"}
        said = box.last_words()
        return {"exit_code": code, "reason": "its sandbox ended, or was killed" + (f": {said}" if said else "")}

    def _remove(self) -> None:
        for box in self._boxes.values():
            box.close()
        self._groups, self._boxes = [], {}

    def close(self) -> None:
        self._remove()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


class _Box:
    """One sandbox with ``verifier.contained`` as its first process, and the socket that is its stdin and stdout."""

    def __init__(self, limits: ContainerLimits) -> None:
        self.socket, theirs = socket.socketpair()
        self.socket.settimeout(30.0)
        self._errors = tempfile.TemporaryFile()  # noqa: SIM115 (closed with the box)
        with theirs:
            self.process = subprocess.Popen(
                [*_box(limits), sys.executable, "-m", "verifier.contained"],
                stdin=theirs.fileno(),
                stdout=theirs.fileno(),
                stderr=self._errors,
                cwd="/",
                start_new_session=True,  # Ctrl-C reaches only the owner, which then closes the socket
            )
        self.name = f"sandbox {self.process.pid}"

    def last_words(self) -> str:
        self._errors.seek(0, os.SEEK_END)
        self._errors.seek(max(0, self._errors.tell() - 500))
        lines = self._errors.read().decode("utf-8", errors="replace").strip().splitlines()
        return lines[-1] if lines else ""

    def close(self) -> None:
        """End the box: when its first process dies, the kernel ends all others in it."""
        self.socket.close()
        self.process.kill()
        self.process.wait()
        self._errors.close()


def _box(limits: ContainerLimits) -> list[str]:
    """The command that makes a sandbox, without the program to run in it."""
    return [
        PROGRAM,
        *("--unshare-all", "--unshare-user", "--disable-userns", "--as-pid-1", "--die-with-parent", "--new-session"),
        *("--uid", "1000", "--gid", "1000", "--cap-drop", "ALL", "--hostname", "lockstep"),
        "--clearenv",
        *(word for name, value in _ENVIRONMENT.items() for word in ("--setenv", name, value)),
        *("--proc", "/proc", "--ro-bind", "/proc/sys", "/proc/sys", "--dev", "/dev"),
        *_in_memory("/tmp", limits.scratch_mib, "1777"),
        *_in_memory("/records", limits.recording_mib, "0700"),
        *_in_memory("/dev/shm", limits.shared_mib, "1777"),
        *_read_only(),  # after these, because this Python may be below /tmp
        *("--remount-ro", "/dev", "--remount-ro", "/"),  # else they are memory without a size limit
        *("--chdir", "/tmp"),
    ]


def _in_memory(path: str, mib: int, mode: str) -> tuple[str, ...]:
    return ("--perms", mode, "--size", str(mib * 2**20), "--tmpfs", path)


def _read_only() -> Iterator[str]:
    """Options that bind the system's libraries, this Python and the two packages; the rest of the host is hidden."""
    for path in map(Path, SYSTEM):
        if path.is_symlink():
            yield from ("--symlink", str(path.readlink()), str(path))
        elif path.exists():
            yield from ("--ro-bind", str(path), str(path))
    for name in SETTINGS:
        yield from ("--ro-bind-try", name, name)
    bound = [Path("/usr")]
    for prefix in map(Path, (sys.base_prefix, sys.prefix)):
        if not any(prefix.is_relative_to(other) for other in bound):
            bound.append(prefix)
            yield from ("--ro-bind", str(prefix), str(prefix))
    for package in PACKAGES:
        here = Path(__file__).parents[2] / package
        yield from ("--ro-bind", str(here), f"/lockstep/{package}")


LAUNCHER = BubblewrapLauncher
