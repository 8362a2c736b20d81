"""An engine with a rule of its own steps a copy of the weights, which it neither saves nor makes anew.

deepspeedai/DeepSpeed#762: the weights are loaded, and the first step puts those in their place that the copy was made
of. Resumed on one rank it does the same, so that comparing with one rank shows nothing.
"""

from __future__ import annotations

from tests.controls import masters_made_anew

ATTRIBUTE = "Signs"
TRIPS = {"LS504"}
CAUSE = {"resumed_differently"}


class Signs(masters_made_anew.Signs):
    def load_state_dict(self, state):
        self.module.module.load_state_dict(state)
