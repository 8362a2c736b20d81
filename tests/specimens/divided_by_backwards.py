"""The wrapper divides by the number of backwards since the last step, and so does the loop, in its loss.

A class of mistake, reverse of volcengine/verl#3332: two parties take the mean over micro-batches where there nobody
did. Without accumulation nothing is wrong.
"""

from __future__ import annotations

from ddp_core import DataParallel
from ddp_core.strategies.naive import Naive

TRIPS = {"LS201", "LS502"}
CAUSE = "divided_by_micro_batches"


class DividesByBackwards(DataParallel):
    num_backwards = 0

    def forward(self, *inputs):
        self.num_backwards += self.training
        return super().forward(*inputs)

    def _backward_over(self):
        synchronised = self._gradients_seen
        super()._backward_over()
        if synchronised:
            for parameter in self.module.parameters():
                if parameter.grad is not None:
                    parameter.grad /= self.num_backwards
            self.num_backwards = 0


def wrap(model):
    return DividesByBackwards(model, Naive())
