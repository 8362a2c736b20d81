"""Declares bfloat16 on the wire, and keeps the learning rate that it began with.

A class of mistake, as schedule_ignored. A contract that allows a loss must not allow everything, nor after the first
step.
"""

from __future__ import annotations

from ddp_core import Contract, DataParallel
from ddp_core.strategies.bucketed import Bucketed

TRIPS = {"LS202"}
CAUSE = {"schedule_ignored", "update_scaled"}
CONTRACT = Contract(lossy="bfloat16")


class KeepsItsRate(DataParallel):
    def wrap_optimizer(self, cls, parameters, **options):
        optimizer = cls(parameters, **options)
        rates = [group["lr"] for group in optimizer.param_groups]

        def put_back(optimizer, args, kwargs):
            for group, rate in zip(optimizer.param_groups, rates, strict=True):
                group["lr"] = rate

        optimizer.register_step_pre_hook(put_back)
        return optimizer


def wrap(model):
    return KeepsItsRate(model, Bucketed(wire="bf16"))
