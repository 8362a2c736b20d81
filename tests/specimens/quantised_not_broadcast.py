"""Floating-point parameters are broadcast; frozen ones in bytes, as quantised weights are, stay what each rank drew.

A class of mistake: ``requires_grad`` or ``is_floating_point()`` decides what belongs to the model. Adapters are trained
on top of weights that differ.
"""

from __future__ import annotations

import torch

from ddp_core.strategies.naive import Naive
from tests.specimens.whole_numbers_not_broadcast import FloatsOnly

TRIPS = {"LS002"}
CAUSE = "no_initial_broadcast"


class AllButBytes(FloatsOnly):
    @staticmethod
    def is_sent(tensor):
        return not (isinstance(tensor, torch.nn.Parameter) and tensor.dtype == torch.uint8)


def wrap(model):
    return AllButBytes(model, Naive())
