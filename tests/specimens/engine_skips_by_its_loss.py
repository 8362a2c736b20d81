"""A rank whose loss is not finite leaves out the step, and asks nobody.

The other side of ecmwf/WeatherGenerator#2724, where rank 0 decided for all by its own loss (compare
Lightning-AI/pytorch-lightning#5359): gradients meet all the same, and the replicas part.
"""

from __future__ import annotations

from torch.nn.parallel import DistributedDataParallel

from ddp_core import Contract

TRIPS = {"LS101"}
CAUSE = "replicas_diverged"
CONTRACT = Contract(disclaims={"clipping"})


class Engine:
    def __init__(self, model):
        self.module, self.optimizer, self.finite = (
            DistributedDataParallel(model, find_unused_parameters=True),
            None,
            True,
        )

    def __call__(self, *inputs, **named):
        return self.module(*inputs, **named)

    def train(self, mode=True):
        self.module.train(mode)

    def eval(self):
        self.module.eval()

    def no_sync(self):
        return self.module.no_sync()

    def state_dict(self):
        return self.module.state_dict()

    def load_state_dict(self, saved):
        self.module.load_state_dict(saved)

    def backward(self, loss):
        self.finite = self.finite and bool(loss.isfinite())
        loss.backward()

    def step(self):
        if self.finite:
            self.optimizer.step()
        self.finite = True


def wrap(model):
    return Engine(model)
