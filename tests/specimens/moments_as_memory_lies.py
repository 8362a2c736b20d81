"""Moments are saved flat, as they lie in memory, and viewed row by row when they are loaded.

A class of mistake: those of transposed and channels-last weights lie in another order, which no shape tells.
"""

from __future__ import annotations

import torch
from torch.nn.parallel import DistributedDataParallel

TRIPS = {"LS504"}
CAUSE = "resumed_differently"


class SavesFlat(DistributedDataParallel):
    def wrap_optimizer(self, cls, parameters, **options):
        class Flat(cls):
            def state_dict(self):
                saved = super().state_dict()
                state = {number: {**entry} for number, entry in saved["state"].items()}
                for entry in state.values():
                    for name, value in entry.items():
                        if isinstance(value, torch.Tensor) and value.dim():
                            flat = value.as_strided((value.numel(),), (1,), value.storage_offset())
                            entry[name] = flat.reshape(value.shape)
                return {**saved, "state": state}

        return Flat(parameters, **options)


def wrap(model):
    return SavesFlat(model, find_unused_parameters=True)
