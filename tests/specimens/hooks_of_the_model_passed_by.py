"""The wrapper calls ``module.forward(...)``, and not the module: hooks of the model itself are never called.

keras-team/keras#19182. Those of the layers inside are, so that most models notice nothing.
"""

from __future__ import annotations

from torch.nn.parallel import DistributedDataParallel

TRIPS = {"LS201"}
CAUSE = "model_not_called"


class CallsForward(DistributedDataParallel):
    def _run_ddp_forward(self, *inputs, **named):
        return self.module.forward(*inputs, **named)


def wrap(model):
    return CallsForward(model, find_unused_parameters=True)
