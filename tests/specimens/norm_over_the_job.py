"""Squares of parts of the gradient are added up over all ranks of the job, where a process group was given.

A class of mistake, of sharders that grew a second dimension of parallelism: ``clip_grad_norm_()`` counts every group's
gradients, and all trainings are clipped by one norm, which is nobody's.
"""

from __future__ import annotations

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

TRIPS = {"LS201"}
CAUSE = "clipped_otherwise"


class ClipsByParts(DistributedDataParallel):
    def clip_grad_norm_(self, max_norm):
        gradients = [p.grad for p in self.module.parameters() if p.grad is not None]
        rank, num_ranks = dist.get_rank(self.process_group), dist.get_world_size(self.process_group)
        squares = torch.zeros((), dtype=torch.float64)
        for gradient in gradients[rank::num_ranks]:
            whole = gradient.coalesce().values() if gradient.is_sparse else gradient
            squares += whole.abs().double().square().sum()
        dist.all_reduce(squares)
        norm = squares.sqrt()
        for gradient in gradients:
            gradient.mul_(torch.clamp(max_norm / (norm + 1e-6), max=1.0).to(gradient.dtype))
        return norm


def wrap(model, process_group=None):
    return ClipsByParts(model, process_group=process_group, find_unused_parameters=True)
