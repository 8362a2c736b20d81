"""One blocking all-reduce for all gradients, after backward: latency is paid once, nothing overlaps.

Gradients are copied end to end into one buffer per dtype and device, in registration order, reduced, and
copied back. This is the opposite extreme of ``naive``; ``bucketed`` is between the two.
"""

from __future__ import annotations

from collections import defaultdict
from typing import Any

import torch
from torch import nn

from ddp_core.strategy import CLAIMS_OF_A_WRAPPER, Contract, Strategy, drop_if_nobody_used, gradient_to_send
from ddp_core.wrapper import DataParallel

CONTRACT = Contract(supports=CLAIMS_OF_A_WRAPPER)


class Flat(Strategy):
    def backward_done(self) -> None:
        used_here = [parameter.grad is not None for parameter in self.parameters]
        by_kind: defaultdict[tuple[torch.dtype, torch.device], list[torch.Tensor]] = defaultdict(list)
        for parameter in self.parameters:
            gradient = gradient_to_send(parameter)
            by_kind[gradient.dtype, gradient.device].append(gradient)
        for gradients in by_kind.values():
            flat = torch.cat([gradient.reshape(-1) for gradient in gradients])
            self.comm.all_reduce(flat)
            for gradient, summed in zip(gradients, flat.split([g.numel() for g in gradients]), strict=True):
                gradient.copy_(summed.view(gradient.shape))
        for parameter, used in zip(self.parameters, used_here, strict=True):
            drop_if_nobody_used(parameter, used_here=used)
            if parameter.grad is not None:
                self.average(parameter.grad)

    def __repr__(self) -> str:
        return "Flat()"


def wrap(model: nn.Module, **options: Any) -> DataParallel:
    return DataParallel(model, Flat(), **options)
