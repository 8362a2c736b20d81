"""Ranks for benchmarks: plain spawned processes on gloo, one thread each. No observer, no fork server.

Special here: a benchmark measures only the strategies, without the verifier.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
import torch.multiprocessing as mp


def on_ranks(world_size: int, function: Callable[..., Any], *arguments: Any) -> Any:
    """Call ``function(*arguments)`` on ``world_size`` ranks; return rank 0's result."""
    os.environ["OMP_NUM_THREADS"] = "1"
    with tempfile.TemporaryDirectory() as folder:
        mp.spawn(_rank, (world_size, folder, function, arguments), nprocs=world_size)
        return torch.load(Path(folder, "result"), weights_only=False)


def _rank(rank: int, world_size: int, folder: str, function: Callable[..., Any], arguments: tuple[Any, ...]) -> None:
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{folder}/store", rank=rank, world_size=world_size)
    result = function(*arguments)
    if rank == 0:
        torch.save(result, Path(folder, "result"))
    dist.barrier()
    dist.destroy_process_group()
