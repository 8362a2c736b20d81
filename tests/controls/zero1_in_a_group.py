"""torch's ``ZeroRedundancyOptimizer`` behind its DDP, both in the process group that they are given."""

from __future__ import annotations

from ddp_core.strategies.zero1 import CONTRACT, Zero1

__all__ = ["CONTRACT", "wrap"]

DRIVER = "optimizer_wrapper"


def wrap(model, process_group=None):
    return Zero1(model, process_group=process_group, find_unused_parameters=True)
