"""ChainerMN's call, ``(actual_optimizer, communicator)``, and a proxy that hands on whatever it is asked for."""

from __future__ import annotations

from ddp_core import Contract
from tests.controls.optimizer_distributed import mean_of_gradients

DRIVER = "distributed_optimizer"
CONTRACT = Contract(sync_buffers=False, disclaims={"sparse_gradients"})


class MultiNodeOptimizer:
    def __init__(self, actual_optimizer, communicator):
        self.__dict__.update(actual_optimizer=actual_optimizer, communicator=communicator)

    def __getattr__(self, name):
        return getattr(self.actual_optimizer, name)

    def step(self):
        mean_of_gradients([p for group in self.param_groups for p in group["params"]])
        self.actual_optimizer.step()


def wrap(actual_optimizer, communicator=None):
    return MultiNodeOptimizer(actual_optimizer, communicator)
