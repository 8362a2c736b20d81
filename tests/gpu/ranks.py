"""A spawned rank on a GPU, with the observer of ``tests.verifier.test_observer``'s ranks."""

from __future__ import annotations

import os
import time
import traceback

import torch
import torch.distributed as dist

from tests.verifier.test_observer import Rank
from verifier import devices
from verifier.nodes import place

LIMIT_S = 120.0


def live(rank, scenario, body):
    """Join the others over NCCL, run ``body``; tensors are made on the GPU unless it says otherwise."""
    try:
        os.environ.update(place(scenario, rank.rank, devices.num_gpus(scenario)))
        devices.settle(scenario)
        torch.set_default_device("cuda")
        store = dist.FileStore(str(rank.folder / "store"), rank.size)
        dist.init_process_group("nccl", store=store, rank=rank.rank, world_size=rank.size)
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


__all__ = ["LIMIT_S", "Rank", "live"]
