"""The model is moved to another device and back after it was wrapped: new parameters, to which DDP has no hook.

pytorch/pytorch#104336. A move between kinds of devices puts new parameters in place of the old ones; on a machine that
has one kind only, torch does the same where it is told to.
"""

from __future__ import annotations

import torch
from torch.nn.parallel import DistributedDataParallel

TRIPS = {"LS101", "LS201"}
CAUSE = "not_synchronised"


def wrap(model):
    ddp = DistributedDataParallel(model, find_unused_parameters=True)
    torch.__future__.set_overwrite_module_params_on_conversion(True)
    try:
        return ddp.cpu()
    finally:
        torch.__future__.set_overwrite_module_params_on_conversion(False)
