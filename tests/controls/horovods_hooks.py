"""Horovod's hooks: each starts an all-reduce of ``.grad`` where it lies, and ``step()`` is who waits and divides.

Between the backward and the step gradients are under way, and nobody but the verifier looks at them.
"""

from __future__ import annotations

import torch
import torch.distributed as dist

from ddp_core import Contract

DRIVER = "distributed_optimizer"
CONTRACT = Contract(
    sync_buffers=False,
    disclaims={
        *("accumulation", "branch_order", "dropped_batches", "loose_forwards", "odd_parameters"),
        *("sparse_gradients", "strided_parameters", "two_backwards", "unused_parameters"),
    },
)


class Hooked(torch.optim.Optimizer):
    def __init__(self, optimizer):
        self.inside, self.under_way = optimizer, {}
        for group in optimizer.param_groups:
            for parameter in group["params"]:
                parameter.register_post_accumulate_grad_hook(self._start)

    state = property(lambda self: self.inside.state)
    param_groups = property(lambda self: self.inside.param_groups)
    defaults = property(lambda self: self.inside.defaults)

    def _start(self, parameter):
        self.under_way[parameter] = dist.all_reduce(parameter.grad, async_op=True)

    def synchronize(self):
        for parameter, work in self.under_way.items():
            work.wait()
            parameter.grad.div_(dist.get_world_size())
        self.under_way.clear()

    def step(self, closure=None):
        self.synchronize()
        return self.inside.step(closure)

    def zero_grad(self, set_to_none=True):
        self.inside.zero_grad(set_to_none)

    def state_dict(self):
        return self.inside.state_dict()

    def load_state_dict(self, saved):
        self.inside.load_state_dict(saved)


def wrap(optimizer):
    return Hooked(optimizer)
