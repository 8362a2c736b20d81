"""Gradients are summed, as the contract says; from the second step on they are divided as well.

A class of mistake: a flag that says whether somebody has divided already, and is set in the first step. All replicas
agree, and the first step, the one that is looked at by hand, is right.
"""

from __future__ import annotations

import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

from ddp_core import Contract

TRIPS = {"LS202"}
CAUSE = ("update_scaled", "update_differs")
CONTRACT = Contract(average="sum", disclaims={"two_backwards"})  # two sums would add up what is summed already


class Sums(DistributedDataParallel):
    divided = False

    def wrap_optimizer(self, cls, parameters, **options):
        optimizer = cls(parameters, **options)
        optimizer.register_step_post_hook(self.note_step)
        return optimizer

    def note_step(self, *_):
        self.divided = True


def sum_or_mean(wrapped, bucket):
    future = dist.all_reduce(bucket.buffer(), async_op=True).get_future()
    divisor = dist.get_world_size() if wrapped.divided else 1
    return future.then(lambda done: done.value()[0] / divisor)


def wrap(model):
    wrapped = Sums(model, find_unused_parameters=True)
    wrapped.register_comm_hook(wrapped, sum_or_mean)
    return wrapped
