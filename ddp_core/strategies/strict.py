"""Refuses to start unless all replicas are equal to the byte; then trains as ``bucketed`` does.

For jobs that load a checkpoint on every rank, or build from one seed. There a broadcast would hide the mistake (a rank
with another file, another seed, another order of initialisation) that should be reported.

Special here: every rank reports a difference, with rank and parameter, before the first step.
"""

from __future__ import annotations

from typing import Any

from torch import nn

from ddp_core.strategies.bucketed import Bucketed
from ddp_core.strategy import CLAIMS_OF_A_WRAPPER, Contract
from ddp_core.wrapper import DataParallel

CONTRACT = Contract(broadcasts_at_start=False, supports=CLAIMS_OF_A_WRAPPER)


def wrap(
    model: nn.Module, *, bucket_cap_mb: float = 25.0, first_bucket_cap_mb: float | None = None, **options: Any
) -> DataParallel:
    strategy = Bucketed(bucket_cap_mb, first_bucket_cap_mb)
    return DataParallel(model, strategy, start="require_equal", **options)
