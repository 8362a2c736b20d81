"""``state_dict`` puts ``module.`` before each name, ``load_state_dict`` of the same wrapper expects none.

A class of mistake, of the family of huggingface/accelerate#3256: only the one half was ever tried. It is found when
the run has to go on.
"""

from __future__ import annotations

from torch import nn
from torch.nn.parallel import DistributedDataParallel

TRIPS = {"LS504"}
CAUSE = "not_loaded"


class HalfAPair(DistributedDataParallel):
    def load_state_dict(self, state_dict, strict=True, assign=False):
        module: nn.Module = self.module
        return module.load_state_dict(state_dict, strict=strict, assign=assign)


def wrap(model):
    return HalfAPair(model, find_unused_parameters=True)
