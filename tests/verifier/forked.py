"""Ranks forked from the test process, for tests that call collectives themselves, with the observer and without it.

Special here: each rank runs its cases in one process, first plain and then observed, so that both results come from the
same process group. Its journal is then loaded as a recording. Any error on a rank fails the test.
"""

from __future__ import annotations

import multiprocessing
import os
import time
import traceback
from pathlib import Path

import torch
import torch.distributed as dist

from verifier import reading
from verifier.journal import Journal
from verifier.observe import kernels
from verifier.observe.delay import Delay
from verifier.observe.observer import Observer
from verifier.request import Builtin
from verifier.scenario import Scenario

LIMIT_S = 60.0


class Rank:
    """One forked process: its rank, the number of ranks, and the folder of its journal."""

    def __init__(self, rank: int, size: int, folder: Path) -> None:
        self.rank, self.size, self.folder = rank, size, folder
        self.journal: Journal | None = None

    def observe(self, delay: Delay | None = None) -> Observer:
        self.journal = Journal(self.folder / "subject" / f"rank{self.rank}")
        observer = Observer(
            self.journal, self.folder / f"board{self.rank}", poison=True, keep_payloads=False, delay=delay
        )
        kernels.install(observer)
        observer.phase, observer.step, observer.micro = "backward", 0, 0
        return observer


def join_over_gloo(rank, store):
    dist.init_process_group("gloo", store=store, rank=rank.rank, world_size=rank.size)


def run_ranks(size, folder, body, *, join=join_over_gloo, start="fork", limit_s=LIMIT_S, **fields):
    """Start ``size`` ranks, run ``body(rank)`` on each, and load what they wrote. Any error fails the test."""
    scenario = Scenario(
        name="t", situation="t", workload="exact", strategy=Builtin(name="naive"), world_size=size, **fields
    )
    scenario.save(folder)
    started = multiprocessing.get_context(start)
    processes = [started.Process(target=_rank, args=(Rank(r, size, folder), body, join)) for r in range(size)]
    for process in processes:
        process.start()
    end = time.monotonic() + limit_s
    for process in processes:
        process.join(max(end - time.monotonic(), 0.1))
    hung = [number for number, process in enumerate(processes) if process.is_alive()]
    for process in processes:
        process.kill()
    errors = [path.read_text() for path in sorted(folder.glob("error*"))]
    assert not errors, "\n".join(errors)
    boards = [folder / f"board{r}" for r in hung]
    assert not hung, f"ranks {hung} hang: {[b.read_bytes().rstrip(bytes(1)) for b in boards if b.exists()]}"
    return reading.read(folder)


def _rank(rank, body, join):
    try:
        torch.set_num_threads(1)
        store = dist.FileStore(str(rank.folder / "store"), rank.size)
        join(rank, store)
        body(rank)
        if rank.journal is not None:
            rank.journal.outcome("completed")
        store.add("done", 1)
        while store.add("done", 0) < rank.size and not list(rank.folder.glob("error*")):
            time.sleep(0.01)
    except BaseException:
        (rank.folder / f"error{rank.rank}").write_text(f"rank {rank.rank}:\n{traceback.format_exc()}")
    finally:
        os._exit(0)


def mine(rank, numel=6, dtype=torch.float32):
    return (torch.arange(numel) + 10 * rank + 1).to(dtype)
