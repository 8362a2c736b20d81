"""A rank skips its step when *its own* loss spikes, and the others take theirs.

ecmwf/WeatherGenerator#2718 (whether to skip is decided on one rank). What may be skipped by all must be decided by all.
Here: the local gradients are larger than ever before on this rank.
"""

from __future__ import annotations

import torch

from ddp_core import DataParallel
from ddp_core.strategies.naive import Naive

TRIPS = {"LS101", "LS201"}
CAUSE = "missing_gradient"


class SkipsSpikes(Naive):
    largest = None

    def backward_done(self):
        with torch.no_grad():
            norm = sum(float(p.grad.abs().square().sum()) for p in self.parameters if p.grad is not None)
        super().backward_done()
        spike = self.largest is not None and norm > self.largest
        self.largest = max(norm, self.largest or norm)
        if spike:
            for parameter in self.parameters:
                parameter.grad = None


def wrap(model):
    return DataParallel(model, SkipsSpikes())
