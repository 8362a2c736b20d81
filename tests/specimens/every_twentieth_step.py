"""In every twentieth step gradients are not synchronised: a counter for the log has come into the wrong branch.

A class of mistake: whatever happens "every N steps" is right in all tests that take fewer.
"""

from __future__ import annotations

from ddp_core import DataParallel
from ddp_core.strategies.naive import Naive

TRIPS = {"LS101", "LS201"}
CAUSE = "not_synchronised"
EVERY = 20


class NowAndThenALine(Naive):
    num_steps = 0

    def backward_done(self):
        self.num_steps += 1
        if self.num_steps % EVERY:
            super().backward_done()


def wrap(model):
    return DataParallel(model, NowAndThenALine())
