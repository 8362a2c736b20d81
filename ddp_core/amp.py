"""A gradient scaler that all ranks agree on: one scale, and one decision to skip a step.

torch's ``GradScaler`` decides on each rank alone. The ranks agree only while all gradients are synchronised before
``unscale_``. A sharded optimizer, a rank-local infinity or a checkpoint that only one rank resumed from breaks this:
one rank skips a step or steps with another scale, and the replicas diverge without an error (pytorch#136009).

Special here: all ranks take rank 0's scale at the start, and the infinities that ``unscale_`` finds are summed over
ranks before any rank decides. If the scales differ later, every rank raises an error. The sum costs one small
all-reduce per optimizer and device.
"""

from __future__ import annotations

from typing import Any

import torch

from ddp_core.comm import Comm


class AgreedGradScaler(torch.amp.GradScaler):
    """``torch.amp.GradScaler`` with one more argument, ``comm``: the ranks that agree, all by default."""

    def __init__(self, device: str = "cuda", *, comm: Comm | None = None, **options: Any) -> None:
        super().__init__(device, **options)
        self.comm = comm or Comm()
        if self.is_enabled():
            self.load_state_dict(self.comm.broadcast_object(self.state_dict()))
            self._init_scale = float(self.get_scale())

    def _unscale_grads_(self, *args: Any, **kwargs: Any) -> dict[torch.device, torch.Tensor]:
        found: dict[torch.device, torch.Tensor] = super()._unscale_grads_(*args, **kwargs)
        scale = float(self.get_scale())
        for found_inf in found.values():
            told = torch.tensor([float(found_inf), scale, scale * scale], dtype=torch.float64, device=found_inf.device)
            self.comm.all_reduce(told)
            someone, mean, mean_of_squares = told[0] > 0, told[1] / self.comm.world_size, told[2] / self.comm.world_size
            if abs(mean * mean - mean_of_squares) > 1e-9 * mean_of_squares:
                raise RuntimeError(
                    f"gradients were scaled by {scale:g} on rank {self.comm.rank} and otherwise on another rank: "
                    "load the scaler's state on every rank"
                )
            found_inf.fill_(float(someone))  # 1, not a count: fused optimizers skip a step only for exactly 1
        return found
