"""Everything is made to require a gradient, so that hooks can be registered: what the user froze is trained.

A class of mistake: parameters that are made anew, or prepared for hooks, lose ``requires_grad=False``. Replicas agree,
and the backbone moves.
"""

from __future__ import annotations

from torch.nn.parallel import DistributedDataParallel

TRIPS = {"LS201", "LS202", "LS701"}
CAUSE = "unfrozen"


def wrap(model):
    for parameter in model.parameters():
        parameter.requires_grad_(True)
    return DistributedDataParallel(model, find_unused_parameters=True)
