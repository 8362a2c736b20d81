"""An engine beside the model, with moments of its own and an update rule of its own, which it saves and loads itself.

The loop has an optimizer that never steps. What is saved of that and of the model is not enough to go on with: whoever
resumes such a run loads the engine's own state as well.
"""

from __future__ import annotations

import torch
import torch.distributed as dist

from ddp_core import Contract

DRIVER = "engine"
CONTRACT = Contract(
    optimizer="own",
    broadcasts_at_start=False,
    sync_buffers=False,
    disclaims={"clipping", "parameter_groups", "schedules", "sparse_gradients"},
)


class Engine:
    def __init__(self, model):
        self.trained = [p for p in model.parameters() if p.requires_grad]
        self.moments = {}  # by place: of what was used once

    def zero_grad(self):
        for parameter in self.trained:
            parameter.grad = None

    def backward(self, loss):
        loss.backward()

    @torch.no_grad()
    def step(self):
        used = torch.tensor([int(p.grad is not None) for p in self.trained])
        dist.all_reduce(used)
        for place, (parameter, number) in enumerate(zip(self.trained, used.tolist(), strict=True)):
            if not number:
                continue
            gradient = torch.zeros_like(parameter) if parameter.grad is None else parameter.grad
            gradient = gradient.contiguous()
            dist.all_reduce(gradient)
            gradient = gradient / dist.get_world_size()
            moment = self.moments.setdefault(place, torch.zeros_like(gradient))
            moment.mul_(0.75).add_(gradient)
            parameter.sub_(moment, alpha=0.0625)

    def state_dict(self):
        return {"moments": self.moments}

    def load_state_dict(self, saved):
        self.moments = saved["moments"]


def wrap(model):
    return Engine(model)
