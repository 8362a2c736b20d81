"""torch's DDP with PowerSGD that starts after this run: until then its hook averages plainly."""

from __future__ import annotations

from torch.distributed.algorithms.ddp_comm_hooks import powerSGD_hook as power_sgd
from torch.nn.parallel import DistributedDataParallel

DRIVER = "native"


def wrap(model):
    wrapped = DistributedDataParallel(model, find_unused_parameters=True)
    state = power_sgd.PowerSGDState(None, matrix_approximation_rank=1, start_powerSGD_iter=1000)
    wrapped.register_comm_hook(state, power_sgd.powerSGD_hook)
    return wrapped
