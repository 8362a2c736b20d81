"""A buffer without dimensions is taken for a counter, and counters are not broadcast: a temperature is one as well.

A class of mistake: ``if buffer.dim()``, to leave out BatchNorm's ``num_batches_tracked``. A scale that was measured on
one rank's data is not what the others compute with.
"""

from __future__ import annotations

from ddp_core.strategies.naive import Naive
from tests.specimens.whole_numbers_not_broadcast import FloatsOnly

TRIPS = {"LS002"}
CAUSE = "no_initial_broadcast"


class AllButSingleNumbers(FloatsOnly):
    @staticmethod
    def is_sent(tensor):
        return tensor.dim() or not tensor.is_floating_point()


def wrap(model):
    return AllButSingleNumbers(model, Naive())
