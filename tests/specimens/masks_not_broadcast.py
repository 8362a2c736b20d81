"""All buffers are broadcast but those of bits: masks that were drawn at random stay what each rank drew.

A class of mistake: a transport once refused ``torch.bool``, and what was left out for that was never put back. Pruning
masks and random projections differ between ranks from the start.
"""

from __future__ import annotations

import torch

from ddp_core.strategies.naive import Naive
from tests.specimens.whole_numbers_not_broadcast import FloatsOnly

TRIPS = {"LS002"}
CAUSE = "no_initial_broadcast"


class AllButMasks(FloatsOnly):
    @staticmethod
    def is_sent(tensor):
        return tensor.dtype != torch.bool


def wrap(model):
    return AllButMasks(model, Naive())
