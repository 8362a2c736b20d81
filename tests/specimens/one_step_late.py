"""The optimizer gets the averaged gradient of the step before, while this step's is under way: a pipeline of depth one.

A class of mistake: delayed gradients as a trick for overlap (as in Lian et al., https://arxiv.org/abs/1506.08272),
under the name of synchronous training. All replicas agree.
"""

from __future__ import annotations

from ddp_core import DataParallel
from ddp_core.strategies.naive import Naive

TRIPS = {"LS201"}  # the last two: wrong from the second step on in any case
CAUSE = "stale_gradient"


class OneStepLate(Naive):
    late = None

    def backward_done(self):
        super().backward_done()
        new = [None if p.grad is None else p.grad.clone() for p in self.parameters]
        old, self.late = self.late or new, new
        for parameter, gradient in zip(self.parameters, old, strict=True):
            parameter.grad = gradient


def wrap(model):
    return DataParallel(model, OneStepLate())
