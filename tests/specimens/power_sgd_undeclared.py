"""PowerSGD of rank 1 from the third step on: exact at first, an approximation ever after, and nothing says so.

A class of mistake: torch's own hook (https://arxiv.org/abs/1905.13727), whose start-up phase makes short tests green.
"""

from __future__ import annotations

from torch.distributed.algorithms.ddp_comm_hooks import powerSGD_hook as power_sgd
from torch.nn.parallel import DistributedDataParallel

TRIPS = {"LS201", "LS502"}
CAUSE = "low_rank"


def wrap(model):
    wrapped = DistributedDataParallel(model)
    state = power_sgd.PowerSGDState(None, matrix_approximation_rank=1, start_powerSGD_iter=2, min_compression_rate=1)
    wrapped.register_comm_hook(state, power_sgd.powerSGD_hook)
    return wrapped
