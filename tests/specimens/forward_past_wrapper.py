"""The loop calls ``ddp.module(x)``: DDP's forward never runs, so nothing is reduced, and buffers stay local, too.

moojink/openvla-oft#160, OpenTSLM/OpenTSLM#49, jingyaogong/minimind#854, huggingface/trl#7245: the wrapper is there, in
the logs and in the checkpoint, and each rank trains alone. Here the habit sits in a small trainer object, as in those
projects.
"""

from __future__ import annotations

from torch.nn.parallel import DistributedDataParallel

TRIPS = {"LS101", "LS102", "LS201"}
CAUSE = {"not_synchronised", "buffers_diverged"}


class Trainer:
    def __init__(self, model):
        self.ddp = DistributedDataParallel(model, find_unused_parameters=True)

    def __call__(self, *inputs):
        return self.ddp.module(*inputs)

    def no_sync(self):
        return self.ddp.no_sync()


def wrap(model):
    return Trainer(model)
