"""Two groups, used in one order on rank 0 and in the other on the rest: each waits for the other, for ever.

meta-pytorch/torchrec#4149: collectives of two process groups, issued in another order on two of 64 ranks, stopped a
production job. Nobody raises, and every call for itself is right.
"""

from __future__ import annotations

import torch.distributed as dist

TRIPS = {"LS601"}
CAUSE = "deadlock"
SETTINGS = {"timeout_s": 20}  # nobody does anything: a quarter of it is waited


class TwoGroups:
    def __init__(self, model):
        self.model = model
        self.groups = [dist.new_group(), dist.new_group()]
        for tensor in model.state_dict().values():
            dist.broadcast(tensor, src=0)

    def __call__(self, *inputs):
        return self.model(*inputs)

    def sync_gradients(self):
        parameters = [p for p in self.model.parameters() if p.grad is not None]
        halves = [parameters[0::2], parameters[1::2]]
        for half in (0, 1) if dist.get_rank() == 0 else (1, 0):
            for parameter in halves[half]:
                dist.all_reduce(parameter.grad, group=self.groups[half])
                parameter.grad /= dist.get_world_size()


def wrap(model):
    return TwoGroups(model)
