"""Whether a job still makes progress, within its limits: asked twice a second, answered with a reason to end it.

Special here: *slow is not hung*. If no journal grows, that is a hang after a short time only if no process uses a
processor either. A job that computes, or waits for its turn on a crowded machine, is given minutes. A job that still
writes when its time is up, or whose started program (a compiler) still computes, is out of time, not hung.
"""

from __future__ import annotations

import os
import time

from verifier.forkserver import family
from verifier.forkserver.limits import GIB, Limits
from verifier.forkserver.member import Member

TICK_S = 0.5
GRACE_AFTER_DEATH_S = 3.0  # after a rank has died, how long the others have to notice and report it
GRACE_AFTER_END_S = 5.0  # after all have completed, how long they have to leave
SHORTEST_STALL_S = 2.0


class Watch:
    """Watches one job; ``look`` may be called as often as you like."""

    def __init__(self, members: list[Member], limits: Limits, timeout_s: float) -> None:
        self._members, self._limits, self._timeout_s = members, limits, timeout_s
        self._begun = self._moved = self._busy = self._looked = time.monotonic()
        self._started_is_busy = 0.0  # when a program that one of them started was last seen to compute
        self._seen = -1
        self.in_a_hurry = False  # every moment makes it worse: end them first
        self._cpu: dict[int, float] = {}
        own = family.look_at(os.getpid())
        self._shared = family.memory_of(os.getpid())
        # A slow job computes and a hung one does not, so a short time limit allows a short patience.
        short_s = max(timeout_s / 4, SHORTEST_STALL_S) if own else limits.stall_s
        self._patience_s = min(limits.stall_s, short_s)

    def look(self) -> str | None:
        """Return why the job must be ended now: "hung..." or "stopped..." ("" if its work is done). None: go on."""
        now = time.monotonic()
        progress = sum(member.progress() for member in self._members)
        if progress != self._seen:
            self._seen, self._moved = progress, now
        failed = [m for m in self._members if not m.running and (m.status != 0 or not m.completed())]
        idle_s = now - self._moved
        if failed and idle_s > GRACE_AFTER_DEATH_S:
            return f"stopped: {', '.join(m.name for m in failed)} had died"
        if idle_s > GRACE_AFTER_END_S and all(m.completed() for m in self._members if m.running):
            return ""
        if now - self._looked >= TICK_S:
            if (excess := self._excess(now)) is not None:
                return excess
            self._looked = now
        computes_too_long = idle_s > self._limits.busy_s and now - self._started_is_busy > self._patience_s
        if computes_too_long or now - max(self._moved, self._busy) > self._patience_s:
            return f"hung: nothing happened for {idle_s:.0f} s"
        if now - self._begun > self._timeout_s:
            return f"stopped: it was still at work when its {self._timeout_s:.0f} s were over"
        return None

    def _excess(self, now: float) -> str | None:
        """Return which limit the processes of the job have passed, if any; note whether one of them is busy."""
        processes = family.descendants(os.getpid())
        if busy := family.busy(processes, self._cpu, now - self._looked):
            self._busy = now
            if any(family.is_another_program(p.pid) for p in busy):
                self._started_is_busy = now
        self._cpu = {p.pid: p.cpu_s for p in processes}
        memory = {p.pid: max(family.memory_of(p.pid) - self._shared, 0) / GIB for p in processes}
        if self._limits.memory_gib is not None and sum(memory.values()) > self._limits.memory_gib:
            most = max(memory, key=lambda pid: memory[pid])
            return (
                f"stopped: used more than {self._limits.memory_gib:.1f} GiB of memory "
                f"({self._whose(most)} the most: {memory[most]:.1f} GiB)"
            )
        if len(processes) > self._limits.num_processes:
            self.in_a_hurry = True
            return f"stopped: started more than {self._limits.num_processes} processes"
        written = sum(family.bytes_written(p.pid) for p in processes) / GIB
        if self._limits.disk_gib is not None and written > self._limits.disk_gib:
            return f"stopped: wrote more than {self._limits.disk_gib:.1f} GiB to disk"
        return None

    def _whose(self, pid: int) -> str:
        """Return the member that ``pid`` is, or was started by."""
        by_pid = {member.pid: member.name for member in self._members}
        seen: int | None = pid
        while seen and seen not in by_pid:
            process = family.look_at(seen)
            seen = process.parent if process else None
        return by_pid.get(seen or 0, "a process that one of them started")
