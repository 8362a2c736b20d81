"""The first process in a container of ranks: forks ranks as ordered, reports on them, and hands over their files.

``python -m verifier.contained`` reads orders from its stdin and answers on its stdout until stdin closes, as it does
when the process that started the container dies. Special here: as the container's first process it reaps its orphans,
no signal from inside ends or stops it, and no other process reads its descriptors. It decides nothing: whether ranks
hang is known only where all of them are seen (``containers.job``).
"""

from __future__ import annotations

import ctypes
import importlib.metadata
import json
import os
import select
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import suppress
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Any

from verifier import devices
from verifier.containers.framing import FILES
from verifier.forkserver import family
from verifier.forkserver.child import die_with_parent, fork
from verifier.forkserver.limits import GIB, Limits
from verifier.forkserver.member import Member, take_stacks
from verifier.forkserver.output import Output
from verifier.forkserver.warmup import warm_up
from verifier.nodes import place
from verifier.scenario import Scenario

RECORDS = Path("/records")  # a tmpfs of its own: a full /tmp does not cut recordings
TICK_S = 0.2
REPEAT_S = 0.9  # an unchanged state is repeated: silence means that something is wrong
_PIECE = 1 << 16
_PR_SET_DUMPABLE = 4


class Station:
    """Runs one container's ranks, one scenario at a time."""

    def __init__(self, orders: int, answers: int) -> None:
        self._orders, self._answers = orders, answers
        self._wake, wake_write = os.pipe()
        for end in (self._wake, wake_write):
            os.set_blocking(end, False)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        signal.set_wakeup_fd(wake_write, warn_on_full_buffer=False)
        self._own = [orders, answers, self._wake, wake_write]
        self._members: list[Member] = []
        self._folder = RECORDS
        self._cpu: dict[int, float] = {}
        self._looked = self._told_at = 0.0
        self._told: dict[str, Any] = {}
        self._kills = 0
        self._limits = Limits()
        self._shared = family.memory_of(os.getpid())  # by all processes here: loaded before they were forked
        self._store: int | None = None

    def serve(self) -> None:
        """Carry out orders until stdin closes."""
        self._say(ready=True, torch=importlib.metadata.version("torch"))
        text = b""
        while True:
            outputs = {m.output.descriptor: m.output for m in self._members if m.running}
            ready, _, _ = select.select([self._orders, self._wake, *outputs], [], [], TICK_S)
            for descriptor in ready:
                if descriptor in outputs:
                    outputs[descriptor].read()
            if self._wake in ready:
                self._reap()
            if self._orders in ready:
                piece = os.read(self._orders, _PIECE)
                if not piece:
                    return
                *lines, text = (text + piece).split(b"\n")
                for line in lines:
                    self._obey(json.loads(line))
            self._report()

    def _obey(self, order: dict[str, Any]) -> None:
        if "store" in order:
            self._open_store(order["store"])
            self._say(store=order["store"])
        elif "run" in order:
            self._start(**order["run"])
        elif "end" in order:
            self._end(**order["end"])

    def _start(self, scenario: dict[str, Any], members: list[str], port: int, limits: dict[str, Any]) -> None:
        self._folder = Path(tempfile.mkdtemp(dir=RECORDS))
        self._cpu, self._kills = {}, _oom_kills()
        self._limits = Limits(**limits)
        asked = Scenario.model_validate(scenario)
        scratch = Path(tempfile.mkdtemp())
        for name in members:
            kind, _, number = name.partition(" ")
            rank = int(number) if kind == "rank" else None
            seed = asked.seed if rank is None else asked.seed * 1009 + rank
            foreign = [*self._own, *(member.output.descriptor for member in self._members)]
            folder, body = self._folder / name, partial(_be, asked, rank, port, self._folder / name)
            pid, printed = fork(folder, name, seed, body, limits=self._limits, scratch=scratch, foreign=foreign)
            output = Output(printed, folder / "output.txt", int(limits["output_mib"] * 2**20))
            self._members.append(Member(name, folder, pid, output))

    def _open_store(self, port: int) -> None:
        """Open the store in its own process, because it has threads and must outlive the rank that ends first."""
        ours, theirs = os.pipe()
        server = os.getpid()
        self._store = os.fork()
        if not self._store:
            with suppress(BaseException):
                die_with_parent(server)
                for descriptor in (*self._own, ours):
                    os.close(descriptor)
                import torch.distributed as dist

                store = dist.TCPStore("127.0.0.1", port, is_master=True, wait_for_workers=False)
                os.close(theirs)
                while store:
                    time.sleep(3600)
            os._exit(1)
        os.close(theirs)
        os.read(ours, 1)  # until it is open or has failed; ranks report a failure
        os.close(ours)

    def _reap(self) -> None:
        with suppress(BlockingIOError):
            while os.read(self._wake, 4096):
                pass
        with suppress(ChildProcessError):
            while (ended := os.waitpid(-1, os.WNOHANG))[0]:
                self._note_end(*ended)

    def _note_end(self, pid: int, status: int) -> None:
        for member in self._members:
            if member.pid == pid:
                member.status = status

    def _report(self) -> None:
        """Report each member's state, and whether any of them uses a processor."""
        if not self._members:
            return
        now, busy = time.monotonic(), None
        if now - self._looked >= TICK_S:  # reading all of /proc for every piece of output costs too much
            processes = [p for p in family.descendants(os.getpid()) if p.pid != self._store]
            at_work = family.busy(processes, self._cpu, now - self._looked)
            busy = ["started" if family.is_another_program(p.pid) else "forked" for p in at_work]
            self._cpu, self._looked = {p.pid: p.cpu_s for p in processes}, now
            self._hold_to_limits(processes)
        elif all(member.running for member in self._members):
            return
        state = {m.name: [m.progress(), m.running, m.status in (None, 0) and m.completed()] for m in self._members}
        if state != self._told or now - self._told_at > REPEAT_S:
            self._told, self._told_at = state, now
            self._say(state=state, busy=busy)

    def _hold_to_limits(self, processes: list[family.Process]) -> None:
        """End all processes, with a reason, if together they use too much and no control group has ended them."""
        limits, excess = self._limits, None
        memory = sum(max(family.memory_of(p.pid) - self._shared, 0) for p in processes) / GIB
        if len(processes) > limits.num_processes:
            excess = f"started more than {limits.num_processes} processes"
        elif limits.memory_gib is not None and memory > limits.memory_gib * len(self._members):
            excess = f"used more than {limits.memory_gib * len(self._members):.1f} GiB of memory"
        if excess is None:
            return
        for member in self._members:
            member.told = f"its container was emptied: its processes {excess}"
        for pid, status in family.end_descendants(spared=self._store).items():
            self._note_end(pid, status)

    def _end(self, why: str, stacks: bool, most: int) -> None:
        """End what still runs; hand over every member's files, at most ``most`` bytes of each; forget them."""
        running = [member for member in self._members if member.running]
        for member in running:
            member.ended = why
        if stacks and running:
            take_stacks(running)
        for pid, status in family.end_descendants().items():
            self._note_end(pid, status)
        killed = _oom_kills() > self._kills
        described = []
        for member in self._members:
            if member.status is None:
                member.status = signal.SIGKILL
            member.output.close()
            for path in (member.folder / name for name in FILES):
                if path.is_symlink():  # not a recording of ours
                    path.unlink()
            described.append(member.describe(out_of_memory=killed))
            for name in FILES:
                self._hand_over(member, name, most)
        self._say(done=described, out_of_memory=killed)
        for folder in (RECORDS, Path(tempfile.gettempdir()), Path("/dev/shm")):
            for left in folder.iterdir():  # the next scenario finds nothing of this one
                with suppress(OSError):
                    shutil.rmtree(left) if left.is_dir() and not left.is_symlink() else left.unlink()
        self._members, self._store = [], None

    def _hand_over(self, member: Member, name: str, most: int) -> None:
        try:
            descriptor = os.open(member.folder / name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
        except OSError:  # not written; or a link now, which is not a recording of ours
            return
        with open(descriptor, "rb") as file:  # noqa: PTH123
            size = min(os.fstat(descriptor).st_size, most)
            self._say(member=member.name, file=name, size=size)
            while size:
                piece = file.read(min(size, _PIECE)) or b"\0" * min(size, _PIECE)  # the file has become shorter
                self._write(piece)
                size -= len(piece)

    def _say(self, **fields: Any) -> None:
        self._write(json.dumps(fields).encode() + b"\n")

    def _write(self, data: bytes) -> None:
        left = memoryview(data)
        while left:
            left = left[os.write(self._answers, left) :]


def _be(scenario: Scenario, rank: int | None, port: int, folder: Path) -> None:
    """Be one rank, or the reference, in the forked process."""
    from verifier.run import acts, reference

    _let_itself_be_looked_at(True)
    with suppress(OSError):
        Path("/proc/self/oom_score_adj").write_text("1000", encoding="ascii")  # kill this one, not the server
    if rank is None:
        devices.settle(scenario)
        reference.run_reference(scenario, folder)
        return
    import torch.distributed as dist

    os.environ.update(place(scenario, rank, devices.num_gpus(scenario)))  # a container sees only its own GPU
    devices.settle(scenario)
    connect: Callable[..., dist.Store] = dist.TCPStore
    store = connect("127.0.0.1", port, is_master=False, wait_for_workers=False, timeout=timedelta(seconds=60))
    acts.run_rank(scenario, rank, store, folder)


def _let_itself_be_looked_at(may: bool) -> None:
    """Allow or forbid other processes of this user to open this process's descriptors and memory."""
    if sys.platform == "linux":
        ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_DUMPABLE, int(may), 0, 0, 0)


def _oom_kills() -> int:
    """How often the kernel has killed a process of this container because memory ran out."""
    for path in ("/sys/fs/cgroup/memory.events", "/sys/fs/cgroup/memory/memory.oom_control"):
        with suppress(OSError):
            for line in Path(path).read_text(encoding="ascii").splitlines():
                if line.startswith("oom_kill "):
                    return int(line.split()[1])
    return 0


def main() -> None:
    orders, answers = os.dup(0), os.dup(1)
    nothing = os.open(os.devnull, os.O_RDWR)
    for descriptor in (0, 1):
        os.dup2(nothing, descriptor)
    _let_itself_be_looked_at(False)
    family.adopt_orphans()
    warm_up()
    Station(orders, answers).serve()


if __name__ == "__main__":
    with suppress(OSError):  # the process that gave orders is gone
        main()
    os._exit(0)  # the container ends with this process, and all else with the container
