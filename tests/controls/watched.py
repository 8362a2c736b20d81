"""A thread looks every few milliseconds whether all ranks are there, in a group of its own, until the process ends.

As monitors do that look for stragglers. Special here: nobody waits for the last of what it issues, and it is at work
when the training is over, on one rank longer than on another.
"""

from __future__ import annotations

import threading
import time

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

DRIVER = "native"


def wrap(model):
    group, wrapped = dist.new_group(), DistributedDataParallel(model, find_unused_parameters=True)
    device = next(model.parameters()).device

    def watch():
        while True:
            try:
                dist.all_reduce(torch.ones(1, device=device), group=group)
            except RuntimeError:  # another rank has ended
                return
            time.sleep(0.005)

    threading.Thread(target=watch, daemon=True).start()
    return wrapped
