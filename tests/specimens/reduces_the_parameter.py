"""The hook is handed the parameter, reduces that, and writes it into ``.grad``: the model learns to be zero.

A class of mistake, seen in public course solutions: ``register_post_accumulate_grad_hook`` hands out the parameter, and
not its gradient.
"""

from __future__ import annotations

from ddp_core import DataParallel
from ddp_core.strategies.naive import Naive

TRIPS = {"LS201"}
CAUSE = "gradient_is_the_parameter"


class ReducesParameters(Naive):
    def backward_done(self):
        for parameter in self.parameters:
            if parameter.grad is not None:
                parameter.grad.copy_(parameter.detach())
        super().backward_done()


def wrap(model):
    return DataParallel(model, ReducesParameters())
