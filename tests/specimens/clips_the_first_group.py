"""``clip_grad_norm_()`` takes the norm of ``param_groups[0]``, and clips that group.

A class of mistake (huggingface/transformers#614 is of its kind): until somebody asks for groups with and without decay,
the first one is all there is.
"""

from __future__ import annotations

import torch
from torch.nn.parallel import DistributedDataParallel

TRIPS = {"LS201"}
CAUSE = "clipped_otherwise"


class ClipsTheFirst(DistributedDataParallel):
    def wrap_optimizer(self, cls, parameters, **options):
        self.optimizer = cls(parameters, **options)
        return self.optimizer

    def clip_grad_norm_(self, max_norm):
        return torch.nn.utils.clip_grad_norm_(self.optimizer.param_groups[0]["params"], max_norm)


def wrap(model):
    return ClipsTheFirst(model, find_unused_parameters=True)
