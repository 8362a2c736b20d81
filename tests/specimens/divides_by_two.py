"""The number of ranks is a constant from the machine on which the code was written: right on two ranks, on no others.

A class of mistake: a world size that is read from a configuration, from one node's number of devices, or hard-coded
(compare goodfire-ai/spd#545, where the producer scaled for a pool of another size than the one that averaged).
"""

from __future__ import annotations

from ddp_core import DataParallel
from ddp_core.strategies.naive import Naive

TRIPS = {"LS201"}
CAUSE = "rescaled"
RIGHT_AT = {2}
NUM_DEVICES = 2


class DividesByTwo(Naive):
    def average(self, gradient, out=None):
        return gradient.div_(NUM_DEVICES)


def wrap(model):
    return DataParallel(model, DividesByTwo())
