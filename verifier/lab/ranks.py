"""Ranks for measuring: plain spawned processes, one thread each, without observer and fork server.

Special here: nothing outlives the command. A rank dies with its parent; all ranks are ended on Ctrl-C, at the deadline,
and when one fails. A rank exits by ``os._exit``, because teardown after gloo may hang.
"""

from __future__ import annotations

import os
import pickle
import signal
import sys
import tempfile
import threading
import time
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from multiprocessing import resource_tracker
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
import torch.multiprocessing as mp

from verifier import devices
from verifier.forkserver.child import die_with_parent
from verifier.launcher import LaunchError

POLL_S = 0.2


def require_device(device: str, world_size: int) -> None:
    """Refuse a missing device before a rank starts; print a line if ranks must share GPUs.

    Raises UsageError that says what is there.
    """
    if device == "cuda" and (number := devices.require_gpus()) < world_size:
        print(
            f"{world_size} ranks take turns on {number} GPU(s): their times are not those of {world_size} GPUs",
            file=sys.stderr,
        )


def on_ranks(
    world_size: int, function: Callable[..., Any], *arguments: Any, device: str = "cpu", timeout_s: float = 600.0
) -> list[Any]:
    """Call ``function(*arguments)`` on every rank, in a process group of all; return what each returned, by rank.

    The backend is gloo on the CPU, and NCCL on CUDA, where ranks that outnumber the GPUs share them. ``function`` must
    be importable, arguments and results picklable.

    Raises LaunchError with the first rank's traceback if one fails, or when ``timeout_s`` is over.
    """
    require_device(device, world_size)
    os.environ["OMP_NUM_THREADS"] = "1"
    os.environ.setdefault("KINETO_LOG_LEVEL", "99")  # else the profiler prints each start and stop
    os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo0" if sys.platform == "darwin" else "lo")
    with tempfile.TemporaryDirectory(prefix="lockstep-lab-", ignore_cleanup_errors=True) as folder:
        words = (world_size, folder, device, timeout_s, os.getpid(), function, arguments)
        spawned = mp.get_context("spawn")
        # Daemons, because at its end Python waits for other processes, whatever ended this one early.
        processes = [spawned.Process(target=_rank, args=(rank, *words), daemon=True) for rank in range(world_size)]
        try:
            with _uninterrupted():
                for process in processes:
                    process.start()
            _wait(processes, Path(folder), time.monotonic() + timeout_s, timeout_s)
        finally:
            started = [process for process in processes if process.pid is not None]
            for process in started:
                process.kill()
            for process in started:
                process.join()
        return [pickle.loads((Path(folder) / f"result-{rank}").read_bytes()) for rank in range(world_size)]


@contextmanager
def _uninterrupted() -> Iterator[None]:
    """Delay Ctrl-C to the end of the block: during a start it would leave an unknown rank, or half of one.

    The signal is blocked, so that ranks inherit that: at a terminal one Ctrl-C reaches all of them, but the parent ends
    them. The handler also holds it back, because a library's thread takes the signal if this thread blocks it.
    """
    if threading.current_thread() is not threading.main_thread():
        yield  # Ctrl-C interrupts only the main thread
        return
    resource_tracker.ensure_running()  # the first process start would launch it and unblock Ctrl-C
    came: list[Any] = []
    handler = signal.signal(signal.SIGINT, lambda *signal_and_frame: came.append(signal_and_frame))
    blocked = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, blocked)
        signal.signal(signal.SIGINT, handler)
        if came and callable(handler):
            handler(*came[0])


def _wait(processes: list[Any], folder: Path, deadline: float, timeout_s: float) -> None:
    while any(process.is_alive() for process in processes):
        failed = [rank for rank, process in enumerate(processes) if process.exitcode not in (None, 0)]
        if failed:
            break
        if time.monotonic() > deadline:
            raise LaunchError(f"the ranks were not done in {timeout_s:g} s: try fewer rounds, or a longer --timeout")
        processes[0].join(POLL_S)
    for rank, process in enumerate(processes):
        if process.exitcode not in (None, 0):
            path = folder / f"error-{rank}"
            told = path.read_text() if path.exists() else f"it ended with exit code {process.exitcode}"
            raise LaunchError(f"rank {rank} failed:\n{told}")


def _rank(
    rank: int,
    world_size: int,
    folder: str,
    device: str,
    timeout_s: float,
    parent: int,
    function: Callable[..., Any],
    arguments: tuple[Any, ...],
) -> None:
    die_with_parent(parent)
    torch.set_num_threads(1)
    tempfile.tempdir = folder  # traces go into the folder that is removed after the run
    code = 1
    try:
        store = dist.FileStore(f"{folder}/store", world_size)
        if device == "cuda":
            devices.share(rank, world_size)
        backend = "nccl" if device == "cuda" else "gloo"
        limit = timedelta(seconds=timeout_s)
        dist.init_process_group(backend, store=store, rank=rank, world_size=world_size, timeout=limit)
        result = function(*arguments)
        Path(folder, f"result-{rank}").write_bytes(pickle.dumps(result))
        dist.barrier()
        code = 0
    except BaseException:
        Path(folder, f"error-{rank}").write_text(traceback.format_exc())
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)
