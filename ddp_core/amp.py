"""A gradient scaler that all ranks agree on: one scale, and one decision to skip a step.

torch's ``GradScaler`` decides on each rank for itself. That holds for as long as all gradients are synchronised before
``unscale_``; a sharded optimizer, a rank-local infinity or a checkpoint that only one rank resumed from breaks it, one
rank skips a step or steps with another scale, and the replicas part without an error (pytorch#136009).

Special here: rank 0's scale is taken at the start, and what ``unscale_`` found is summed over ranks before anyone acts.
The sum costs one small all-reduce per optimizer and device.
"""

from __future__ import annotations

from typing import Any

import torch

from ddp_core.comm import Comm


class AgreedGradScaler(torch.amp.GradScaler):
    """``torch.amp.GradScaler`` with the arguments of that, and ``comm``: the ranks that agree, all by default."""

    def __init__(self, device: str = "cuda", *, comm: Comm | None = None, **options: Any) -> None:
        super().__init__(device, **options)
        self.comm = comm or Comm()
        if self.is_enabled():
            self.load_state_dict(self.comm.broadcast_object(self.state_dict()))
            self._init_scale = float(self.get_scale())

    def _unscale_grads_(self, *args: Any, **kwargs: Any) -> dict[torch.device, torch.Tensor]:
        found: dict[torch.device, torch.Tensor] = super()._unscale_grads_(*args, **kwargs)
        for found_inf in found.values():
            self.comm.all_reduce(found_inf)
        return found
