"""torch's DDP, with the claim that ranks may register equal parameters in different orders.

A class of mistake (C04 of our collection): DDP compares counts and shapes, never names, so siblings of one shape are
swapped on the rank that registered them in another order: by the initial broadcast, and by every reduction.
"""

from __future__ import annotations

from torch.nn.parallel import DistributedDataParallel

from ddp_core import Contract

TRIPS = {"LS001", "LS101", "LS201"}
CAUSE = "no_initial_broadcast"
CONTRACT = Contract(supports={"registration_order"})


def wrap(model):
    return DistributedDataParallel(model, find_unused_parameters=True)
