"""Workers fetch weights from the server at the beginning of a forward, but not while they evaluate.

A class of mistake: a synchronisation that stands behind ``if self.training``. Training is right, and every rank but the
server validates with weights that are a step old; and who trains in evaluation mode never fetches any.
"""

from __future__ import annotations

from tests.controls.fetched_by_workers import Worker

TRIPS = {"LS101", "LS201", "LS204"}
CAUSE = "evaluation_differs"


class Hurried(Worker):
    def forward(self, *inputs):
        return super().forward(*inputs) if self.training else self.module(*inputs)


def wrap(model):
    return Hurried(model)


CONTRACT = Worker.contract
