"""``state_dict`` holds parameters only: BatchNorm's statistics are not saved, and not missed when it is loaded.

A class of mistake, and a common one: a dictionary made from ``named_parameters()``, and ``strict=False`` to make it
load.
"""

from __future__ import annotations

from ddp_core import DataParallel
from ddp_core.strategies.naive import Naive

TRIPS = {"LS503", "LS504"}
CAUSE = "names_missing_in_state_dict"


class ParametersOnly(DataParallel):
    def state_dict(self, *args, **kwargs):
        return {name: parameter.detach() for name, parameter in self.module.named_parameters()}

    def load_state_dict(self, state_dict, strict=True, assign=False):
        return self.module.load_state_dict(state_dict, strict=False, assign=assign)


def wrap(model):
    return ParametersOnly(model, Naive())
