"""Model and optimizer go in, and both come out: the optimizer is another object, that counts its steps."""

from __future__ import annotations

from torch.nn.parallel import DistributedDataParallel

DRIVER = "native"


class Counting:
    def __init__(self, optimizer):
        self.optimizer, self.num_steps = optimizer, 0

    def __getattr__(self, name):
        return getattr(self.optimizer, name)

    def step(self):
        self.num_steps += 1
        self.optimizer.step()


def wrap(model, optimizer):
    return DistributedDataParallel(model, find_unused_parameters=True), Counting(optimizer)
