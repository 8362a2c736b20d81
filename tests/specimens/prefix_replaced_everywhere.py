"""The wrapper's prefix is taken off with ``replace("module.", "")``, also where a layer of the model has that name.

A class of mistake, in many a script that saves; loading with ``strict=False`` hides that names are gone.
"""

from __future__ import annotations

from torch.nn.parallel import DistributedDataParallel

TRIPS = {"LS503", "LS504"}
CAUSE = "names_missing_in_state_dict"


class Renames(DistributedDataParallel):
    def state_dict(self, *args, **kwargs):
        return {name.replace("module.", ""): value for name, value in super().state_dict(*args, **kwargs).items()}

    def load_state_dict(self, saved, strict=True):
        return self.module.load_state_dict(saved, strict=False)


def wrap(model):
    return Renames(model, find_unused_parameters=True)
