"""BatchNorm's weight and bias are left out of the reduction: by the type of their module, as its buffers would be.

A class of mistake, of the family of deepspeedai/DeepSpeed#1801: what a module is decides how its parameters are
treated. All but the norms stays together, and the norms drift apart.
"""

from __future__ import annotations

from torch import nn

from ddp_core import DataParallel
from ddp_core.strategies.naive import Naive

TRIPS = {"LS101", "LS201"}
CAUSE = "not_synchronised"


class SkipsNorms(Naive):
    def __init__(self, model):
        norms = [module for module in model.modules() if isinstance(module, nn.BatchNorm1d)]
        self.skipped = {parameter for norm in norms for parameter in norm.parameters()}

    def backward_done(self):
        self.parameters = [parameter for parameter in self.parameters if parameter not in self.skipped]
        super().backward_done()


def wrap(model):
    return DataParallel(model, SkipsNorms(model))
