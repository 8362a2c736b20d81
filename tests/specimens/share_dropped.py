"""A rank that finds one of its gradients not finite brings zeros for all of them: its share is gone, and nobody knows.

A class of mistake, of loops that guard against spikes before the ranks have met. The step is taken by what the others
have, divided by all, and no loss scaler hears that its scale is too large.
"""

from __future__ import annotations

import torch

from tests.controls.own_driver import CONTRACT as CONTRACT
from tests.controls.own_driver import HandedOver

TRIPS = {"LS202"}
CAUSE = "infinity_hidden"


class DropsItsShare(HandedOver):
    def before_step(self):
        gradients = [p.grad for _, p in self.named_parameters() if p.grad is not None]
        if not all(bool(torch.isfinite(gradient).all()) for gradient in gradients):
            for gradient in gradients:
                gradient.zero_()
        super().before_step()


wrap = DropsItsShare
