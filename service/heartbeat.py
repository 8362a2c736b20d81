"""Heartbeats of workers: one row each, renewed every two seconds, and read by every worker's sweep.

Special here: a row also says which process wrote it (boot, pid namespace, pid, start time). On the same machine a sweep
looks that process up instead of waiting for a missed heartbeat: a killed worker is known to be dead at once, and one
that is starved of CPU by its own ranks is never mistaken for dead. Across machines only missed heartbeats count.

``python -m service.heartbeat`` exits 0 if a worker of this machine is alive (a container's health check).
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable
from pathlib import Path

import sqlalchemy as sa

from service.db import ExecutorRow, clock, connect

INTERVAL_S = 2.0
SILENT_S = 30.0
FORGET_S = 3600.0


def this_process() -> str | None:
    """A name of this process that no other process ever has; None where /proc does not provide it."""
    machine, started = _machine(), _started(os.getpid())
    return f"{machine}/{os.getpid()}/{started}" if machine and started else None


def is_running(process: str | None) -> bool | None:
    """Return whether that process exists; None if it is on another machine or cannot be looked up."""
    machine = _machine()
    if process is None or machine is None or not process.startswith(machine + "/"):
        return None
    pid, started = process.removeprefix(machine + "/").split("/")
    return _started(int(pid)) == started


def _machine() -> str | None:
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
        return f"{boot}/{Path('/proc/self/ns/pid').readlink()}"
    except OSError:
        return None


def _started(pid: int) -> str | None:
    """The start time of a living process in clock ticks since boot; None for a dead process or a zombie."""
    try:
        # The command name, in parentheses, may hold spaces and parentheses of its own.
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return None
    return None if fields[0] in "ZX" else fields[19]


def beat(engine: sa.Engine, executor_id: str, slots: int) -> None:
    with engine.begin() as connection:
        fresh = {"process": this_process(), "slots": slots, "beat_at": clock(engine)}
        known = sa.update(ExecutorRow).where(ExecutorRow.id == executor_id).values(**fresh)
        if connection.execute(known).rowcount == 0:
            connection.execute(sa.insert(ExecutorRow).values(id=executor_id, **fresh))


def leave(engine: sa.Engine, executor_id: str) -> None:
    """Delete the worker's row, so that runs that it still holds can be recovered at once."""
    with engine.begin() as connection:
        connection.execute(sa.delete(ExecutorRow).where(ExecutorRow.id == executor_id))


def alive(engine: sa.Engine) -> set[str]:
    age = (clock(engine) - ExecutorRow.beat_at).label("age")
    with engine.connect() as connection:
        rows = connection.execute(sa.select(ExecutorRow.id, ExecutorRow.process, age)).all()
    return set(_judge((row.id, row.process, row.age) for row in rows))


def _judge(rows: Iterable[tuple[str, str | None, float]]) -> Iterable[str]:
    for executor_id, process, age in rows:
        running = is_running(process)
        if age < SILENT_S if running is None else running:
            yield executor_id


def forget_old(engine: sa.Engine) -> None:
    """Delete rows whose last heartbeat is long ago; nothing refers to them."""
    with engine.begin() as connection:
        connection.execute(sa.delete(ExecutorRow).where(ExecutorRow.beat_at < clock(engine) - FORGET_S))


def main() -> int:
    from service.settings import load_settings

    engine = connect(load_settings().database)
    age = (clock(engine) - ExecutorRow.beat_at).label("age")
    with engine.connect() as connection:
        rows = connection.execute(sa.select(ExecutorRow.process, age)).all()
    return 0 if any(row.age < SILENT_S and is_running(row.process) for row in rows) else 1


if __name__ == "__main__":
    sys.exit(main())
