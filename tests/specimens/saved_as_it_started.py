"""``state_dict()`` gives bytes, and what is in them is the model as it was wrapped.

A class of mistake: a snapshot is taken once and serialised when it is asked for. What is saved has no names that
anybody could look at, so that only a resumed run tells.
"""

from __future__ import annotations

import io

import torch
from torch.nn.parallel import DistributedDataParallel

TRIPS = {"LS504"}
CAUSE = "resumed_differently"


class Snapshot(DistributedDataParallel):
    def state_dict(self, *args, **kwargs):
        if "at_start" not in self.__dict__:
            return super().state_dict(*args, **kwargs)
        file = io.BytesIO()
        torch.save(self.__dict__["at_start"], file)
        return file.getvalue()

    def load_state_dict(self, saved, *args, **kwargs):
        return super().load_state_dict(torch.load(io.BytesIO(saved)))


def wrap(model):
    wrapped = Snapshot(model, find_unused_parameters=True)
    wrapped.__dict__["at_start"] = {name: tensor.clone() for name, tensor in wrapped.state_dict().items()}
    return wrapped
