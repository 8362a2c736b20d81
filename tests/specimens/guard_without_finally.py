"""A guard against calls from inside a forward, which stays shut after a forward that raised: nothing is prepared again.

A class of mistake: a flag is set before the model is called and taken back after it, without a ``finally``. A loop that
catches an exception (a batch that does not fit into memory) trains on with replicas that no longer talk.
"""

from __future__ import annotations

from torch.nn.parallel import DistributedDataParallel

TRIPS = {"LS101", "LS201"}
CAUSE = "not_synchronised"


class Guarded(DistributedDataParallel):
    inside = False

    def forward(self, *inputs, **named):
        if self.inside:  # it is prepared already
            return self.module(*inputs, **named)
        self.inside = True
        output = super().forward(*inputs, **named)
        self.inside = False
        return output


def wrap(model):
    return Guarded(model, find_unused_parameters=True)
