"""``state_dict`` has bare names, ``load_state_dict`` expects ``module.`` before each and is not strict: nothing loads.

A class of mistake, of the family of huggingface/accelerate#3256: prefixes that come and go with a wrapper, and
``strict=False``, which turns every missing name into silence. The run goes on, from fresh weights.
"""

from __future__ import annotations

from ddp_core import DataParallel
from ddp_core.strategies.naive import Naive

TRIPS = {"LS504"}
CAUSE = "resumed_differently"


class LoadsNothing(DataParallel):
    def load_state_dict(self, state_dict, strict=True, assign=False):
        inner = {n.removeprefix("module."): t for n, t in state_dict.items() if n.startswith("module.")}
        return self.module.load_state_dict(inner, strict=False, assign=assign)


def wrap(model):
    return LoadsNothing(model, Naive())
