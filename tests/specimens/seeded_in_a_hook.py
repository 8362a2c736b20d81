"""For dropout that can be repeated, a hook seeds torch when the model's forward begins: alike on all ranks.

A class of mistake: the seed counts steps and knows nothing of ranks, and what was there before is put back afterwards,
so that before and after each step nothing shows.
"""

from __future__ import annotations

import torch
from torch.nn.parallel import DistributedDataParallel

TRIPS = {"LS801"}
CAUSE = "same_random_numbers"


def wrap(model):
    kept = []

    def begin(module, inputs):
        kept.append(torch.get_rng_state())
        torch.manual_seed(1234 + len(kept))

    def end(module, inputs, output):
        torch.set_rng_state(kept[-1])

    model.register_forward_pre_hook(begin)
    model.register_forward_hook(end)
    return DistributedDataParallel(model, find_unused_parameters=True)
