"""An evaluation amid the micro-batches of a step is taken for its end, and what was accumulated is cleared.

A class of mistake (huggingface/accelerate#960 and #1050 are of its kind): loops that validate every so many batches do
not wait until the optimizer has stepped.
"""

from __future__ import annotations

from torch.nn.parallel import DistributedDataParallel

TRIPS = {"LS201"}
CAUSE = None


class ClearsInEval(DistributedDataParallel):
    def train(self, mode=True):
        if not mode and hasattr(self, "module"):
            for parameter in self.module.parameters():
                parameter.grad = None
        return super().train(mode)


def wrap(model):
    return ClearsInEval(model, find_unused_parameters=True)
