"""torch's DDP, with the claim that two forwards may come before their two backwards.

huggingface/accelerate#1726: the second backward is one that the reducer does not expect, and it adds local gradients to
averaged ones. DDP itself does not claim this; somebody who builds on it does.
"""

from __future__ import annotations

from torch.nn.parallel import DistributedDataParallel

from ddp_core import Contract

TRIPS = {"LS101", "LS201"}
CAUSE = "first_micro_batch_only"
CONTRACT = Contract(supports={"two_forwards"})


def wrap(model):
    return DistributedDataParallel(model, find_unused_parameters=True)
