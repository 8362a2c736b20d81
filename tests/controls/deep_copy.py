"""Trains a deep copy of the model it was given: tags do not reach it, and nothing may be concluded from that."""

from __future__ import annotations

import copy

from ddp_core.strategies import naive

DRIVER = "native"


def wrap(model):
    return naive.wrap(copy.deepcopy(model))
