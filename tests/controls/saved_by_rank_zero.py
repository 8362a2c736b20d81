"""Rank 0 saves for all and loads for all: elsewhere ``state_dict`` is empty, and weights arrive by broadcast.

As torch's ``StateDictOptions(full_state_dict=True, broadcast_from_rank0=True)`` does it, to keep one copy in memory.
"""

from __future__ import annotations

import torch.distributed as dist

from ddp_core import DataParallel
from ddp_core.strategies.naive import Naive

DRIVER = "native"


class SavedOnce(DataParallel):
    def state_dict(self, *args, **kwargs):
        return self.module.state_dict() if dist.get_rank() == 0 else {}

    def load_state_dict(self, state_dict, strict=True, assign=False):
        if dist.get_rank() == 0:
            self.module.load_state_dict(state_dict, strict=strict, assign=assign)
        self.broadcast_state()


def wrap(model):
    return SavedOnce(model, Naive())
