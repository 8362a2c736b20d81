"""Ranks for measuring: plain spawned processes, one thread each, no observer and no fork server around them.

Special here: nothing outlives the command. A rank dies with its parent, all of them are ended on Ctrl-C, at the
deadline, and when one fails; and a rank leaves by ``os._exit``, because tearing down after gloo may hang.
"""

from __future__ import annotations

import os
import pickle
import sys
import tempfile
import time
import traceback
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
import torch.multiprocessing as mp

from verifier.errors import UsageError
from verifier.forkserver.child import die_with_parent
from verifier.launcher import LaunchError

POLL_S = 0.2


def require_device(device: str, world_size: int) -> None:
    """Refuse a device that is not here, before a rank starts.

    Raises UsageError with what is there.
    """
    if device == "cuda" and torch.cuda.device_count() < world_size:
        raise UsageError(
            f"--device cuda needs a GPU for each of the {world_size} ranks, and {torch.cuda.device_count()} are here. "
            "Use --device cpu, or fewer ranks."
        )


def on_ranks(
    world_size: int, function: Callable[..., Any], *arguments: Any, device: str = "cpu", timeout_s: float = 600.0
) -> list[Any]:
    """Call ``function(*arguments)`` on every rank, in a process group of all; return what each returned, by rank.

    gloo on the CPU, NCCL with one GPU a rank on CUDA. ``function`` is importable, arguments and results picklable.

    Raises LaunchError with the first rank's traceback if one fails, or when ``timeout_s`` is over.
    """
    require_device(device, world_size)
    os.environ["OMP_NUM_THREADS"] = "1"
    os.environ.setdefault("KINETO_LOG_LEVEL", "99")  # else the profiler tells of each start and stop
    os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo0" if sys.platform == "darwin" else "lo")
    with tempfile.TemporaryDirectory(prefix="lockstep-lab-", ignore_cleanup_errors=True) as folder:
        words = (world_size, folder, device, timeout_s, os.getpid(), function, arguments)
        context = mp.spawn(_rank, words, nprocs=world_size, join=False)
        try:
            _wait(context.processes, Path(folder), time.monotonic() + timeout_s, timeout_s)
        finally:
            for process in context.processes:
                process.kill()
            for process in context.processes:
                process.join()
        return [pickle.loads((Path(folder) / f"result-{rank}").read_bytes()) for rank in range(world_size)]


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
    code = 1
    try:
        store = dist.FileStore(f"{folder}/store", world_size)
        if device == "cuda":
            torch.cuda.set_device(rank)
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
