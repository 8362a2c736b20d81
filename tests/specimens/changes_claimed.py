"""torch's DDP, with the claim that parameters may be frozen or replaced after wrapping.

pytorch/pytorch#104336: hooks stay on the tensors that were there when the model was wrapped. What comes later trains
locally, on each rank for itself.
"""

from __future__ import annotations

from torch.nn.parallel import DistributedDataParallel

from ddp_core import Contract

TRIPS = {"LS201"}
CAUSE = None
CONTRACT = Contract(supports={"changes_after_wrap"})


def wrap(model):
    return DistributedDataParallel(model, find_unused_parameters=True)
