"""``broadcast_buffers=False``: each rank's BatchNorm keeps statistics of its own data, and rank 0's are saved.

huggingface/pytorch-image-models#110, pytorch/pytorch#13711: the option saves a broadcast a step, and evaluation differs
by the rank that does it.
"""

from __future__ import annotations

from torch.nn.parallel import DistributedDataParallel

TRIPS = {"LS002", "LS102"}
CAUSE = "no_initial_broadcast"


def wrap(model):
    return DistributedDataParallel(model, find_unused_parameters=True, broadcast_buffers=False)
