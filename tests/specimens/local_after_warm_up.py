"""After eight steps torch's post-localSGD hook averages within a node alone; the averaging of models was left out.

A class of mistake: the hook is only half of post-local SGD. Its other half, a PeriodicModelAverager or the optimizer
that has one, belongs into the loop, and nothing says so where it is missing: until the warm-up's end, and on one
node, all is well. Here each rank is a node of its own.
https://docs.pytorch.org/docs/stable/ddp_comm_hooks.html
"""

from __future__ import annotations

import torch.distributed as dist
from torch.distributed.algorithms.ddp_comm_hooks import post_localSGD_hook as post_local_sgd
from torch.nn.parallel import DistributedDataParallel

TRIPS = {"LS101", "LS201"}
CAUSE = "not_synchronised"


def wrap(model):
    wrapped = DistributedDataParallel(model, find_unused_parameters=True)
    own_node, _ = dist.new_subgroups(1)
    state = post_local_sgd.PostLocalSGDState(None, own_node, start_localSGD_iter=8, post_local_gradient_allreduce=True)
    wrapped.register_comm_hook(state, post_local_sgd.post_localSGD_hook)
    return wrapped
