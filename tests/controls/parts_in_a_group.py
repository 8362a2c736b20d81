"""All that a strategy does in a process group that it is given: buffers are averaged there, and squares of parts added.

Right: counters come from the group's own first rank, floating buffers are the group's mean, and the norm that gradients
are clipped by is put together from the parts of the group's ranks.
"""

from __future__ import annotations

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

DRIVER = "native"


class InAGroup(DistributedDataParallel):
    def forward(self, *inputs, **named):
        if self.module.training and self.require_backward_grad_sync:
            share_buffers(self.module, self.process_group)
        return super().forward(*inputs, **named)

    def clip_grad_norm_(self, max_norm):
        gradients = [p.grad for p in self.module.parameters() if p.grad is not None]
        rank, num_ranks = dist.get_rank(self.process_group), dist.get_world_size(self.process_group)
        squares = torch.zeros((), dtype=torch.float64)
        for gradient in gradients[rank::num_ranks]:
            whole = gradient.coalesce().values() if gradient.is_sparse else gradient
            squares += whole.abs().double().square().sum()
        dist.all_reduce(squares, group=self.process_group)
        norm = squares.sqrt()
        for gradient in gradients:
            gradient.mul_(torch.clamp(max_norm / (norm + 1e-6), max=1.0).to(gradient.dtype))
        return norm


def share_buffers(model, group):
    for buffer in model.buffers():
        if buffer.is_floating_point():
            dist.all_reduce(buffer, group=group)
            buffer /= dist.get_world_size(group)
        else:
            dist.broadcast(buffer, group=group, group_src=0)


def wrap(model, process_group=None):
    for buffer in model.buffers():
        dist.broadcast(buffer, group=process_group, group_src=0)
    return InAGroup(model, process_group=process_group, broadcast_buffers=False, find_unused_parameters=True)
