"""A deep copy of the model is trained, and each hook of the copy reduces its gradient at once.

A class of mistake: ``hooks_by_arrival``, in a wrapper that copies what it is given. What marks gradients in the model
does not reach the copy, so that the numbers alone can tell.
"""

from __future__ import annotations

import copy

from ddp_core import Contract
from tests.specimens import hooks_by_arrival

TRIPS = {"LS101", "LS201"}
CAUSE = {"another_parameters_gradient", "replicas_diverged"}
CONTRACT = Contract(disclaims={"unused_parameters"})


def wrap(model):
    return hooks_by_arrival.wrap(copy.deepcopy(model))
