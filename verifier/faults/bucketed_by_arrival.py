"""Buckets are filled in the order in which gradients become ready, on each rank for itself.

Published in several tutorials, and right as long as every rank runs the same branches in the same order. If one rank
does not, its n-th bucket holds other parameters, and the all-reduce adds gradients of different parameters: no error,
no warning, a loss that falls more slowly than it should.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import nn

from ddp_core.buckets import MB
from ddp_core.comm import Comm, Pending
from ddp_core.strategy import Strategy
from ddp_core.wrapper import DataParallel
from verifier.fault import fault


class BucketedByArrival(Strategy):
    def __init__(self, cap_mb: float) -> None:
        self.cap_bytes = cap_mb * MB

    def prepare(self, named_parameters: Sequence[tuple[str, nn.Parameter]], comm: Comm) -> None:
        super().prepare(named_parameters, comm)
        self.arrived: list[nn.Parameter] = []
        self.in_flight: list[tuple[list[nn.Parameter], torch.Tensor, Pending]] = []

    def gradient_ready(self, parameter: nn.Parameter) -> None:
        self.arrived.append(parameter)  # the mistake: this order is this rank's own
        if sum(p.numel() * p.element_size() for p in self.arrived) >= self.cap_bytes:
            self.flush()

    def flush(self) -> None:
        if self.arrived:
            flat = torch.cat([p.grad.detach().reshape(-1) for p in self.arrived if p.grad is not None])
            self.in_flight.append((self.arrived, flat, self.comm.all_reduce_async(flat)))
            self.arrived = []

    def backward_done(self) -> None:
        self.flush()
        for parameters, flat, work in self.in_flight:
            work.wait()
            self.average(flat)
            for parameter, mean in zip(parameters, flat.split([p.numel() for p in parameters]), strict=True):
                assert parameter.grad is not None
                parameter.grad.copy_(mean.view(parameter.shape))
        self.in_flight = []


@fault(trips={"LS101", "LS201", "LS301"}, cause="another_parameters_gradient", applies_to=("bucketed",))
def bucketed_by_arrival(model: Any, wrap: Any) -> Any:
    return DataParallel(model, BucketedByArrival(cap_mb=25.0))


FAULT = bucketed_by_arrival
