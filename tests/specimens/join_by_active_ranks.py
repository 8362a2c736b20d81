"""Inside ``join()`` gradients are divided by the ranks that still have data, not by the world size, and nobody asked.

After pytorch/pytorch#44425 and the option ``divide_by_initial_world_size`` that torch's ``join`` has since: the last
batches then weigh more than the others, and a run on N ranks is no longer the run on one.
"""

from __future__ import annotations

from ddp_core import Contract, DataParallel
from ddp_core.strategies.naive import Naive

TRIPS = {"LS203"}
CAUSE = "uneven_step_differs"
CONTRACT = Contract(supports={"uneven_inputs"})


class Joining(DataParallel):
    def join(self):
        return super().join(divide_by_initial_world_size=False)


def wrap(model):
    return Joining(model, Naive())
