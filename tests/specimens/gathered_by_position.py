"""New weights are sent bucket by bucket during the forward, and a module that is used before its turn finds none due.

It computes with the weights of the step before, where blocks register their layers first and their norms last.
Source: https://github.com/NVIDIA/Megatron-LM/issues/950
"""

from __future__ import annotations

from tests.controls.gathered_in_turn import CONTRACT as CONTRACT
from tests.controls.gathered_in_turn import GatheredInTurn

DRIVER = "native"
TRIPS = {"LS101", "LS201", "LS202", "LS504"}
CAUSE = "not_stepped"


class GatheredByPosition(GatheredInTurn):
    def put_in_place(self, number):
        if number in self.under_way:
            self.receive(number)
            self.send(number + 1)


def wrap(model):
    return GatheredByPosition(model)
