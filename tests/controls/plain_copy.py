"""No ``nn.Module``: an object that holds a copy of the model, and says what its parameters are."""

from __future__ import annotations

import copy

from ddp_core.strategies import naive

DRIVER = "native"


class Trainer:
    def __init__(self, model):
        self.net = naive.wrap(copy.deepcopy(model))

    def __call__(self, *inputs):
        return self.net(*inputs)

    def named_parameters(self):
        return self.net.named_parameters()

    def no_sync(self):
        return self.net.no_sync()

    def state_dict(self):
        return self.net.state_dict()

    def load_state_dict(self, state):
        self.net.load_state_dict(state)


def wrap(model):
    return Trainer(model)
