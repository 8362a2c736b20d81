"""Waits by polling ``is_completed()`` and by chaining a future: two legal ways to learn that a result is there."""

from __future__ import annotations

import time

import torch.distributed as dist

from ddp_core import Contract

DRIVER = "explicit"
CONTRACT = Contract(sync_buffers=False, disclaims={"unused_parameters", "sparse_gradients"})


class Polling:
    def __init__(self, model):
        self.model = model
        for tensor in model.state_dict().values():
            dist.broadcast(tensor, src=0)

    def __call__(self, *inputs):
        return self.model(*inputs)

    def sync_gradients(self):
        for place, parameter in enumerate(self.model.parameters()):
            work = dist.all_reduce(parameter.grad, async_op=True)
            if place % 2:
                while not work.is_completed():
                    time.sleep(0.0001)
                parameter.grad /= dist.get_world_size()
            else:
                mean = work.get_future().then(lambda done: done.value()[0] / dist.get_world_size()).wait()
                parameter.grad = mean


def wrap(model):
    return Polling(model)
