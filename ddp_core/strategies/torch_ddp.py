"""torch's own DistributedDataParallel, unchanged: the reference with which every other strategy is compared.

Options go to its constructor: ``bucket_cap_mb``, ``find_unused_parameters``, ``gradient_as_bucket_view``,
``static_graph``, ``broadcast_buffers`` and the rest.
"""

from __future__ import annotations

from typing import Any

from torch import nn
from torch.nn.parallel import DistributedDataParallel

from ddp_core.strategy import Contract

CONTRACT = Contract(supports=frozenset({"uneven_inputs"}))


def wrap(model: nn.Module, *, bucket_cap_mb: float | None = None, **options: Any) -> DistributedDataParallel:
    return DistributedDataParallel(model, bucket_cap_mb=bucket_cap_mb, **options)
