"""Replicas are made equal once in a process: a flag of the module says that it has been done, and means another model.

A class of mistake, of whatever is initialised "only once" by a flag that all models share. The first model is right; a
second one (a discriminator, a student) goes on from whatever its rank has built.
"""

from __future__ import annotations

from torch.nn.parallel import DistributedDataParallel

TRIPS = {"LS001"}
CAUSE = "no_initial_broadcast"

_is_equal = False


def wrap(model):
    global _is_equal
    first, _is_equal = not _is_equal, True
    return DistributedDataParallel(model, init_sync=first)
