"""Sharded optimizer: the strategy builds an optimizer from parameters and a class, as ZeroRedundancyOptimizer does.

The strategy is a class or function ``(parameters, optimizer_class, ...)``, recognised by its second argument. Only its
own part is tested: gradients are reduced by torch's DDP around the model. DDP would hide the reduction of an optimizer
that reduces gradients itself; such a one is driven with ``--driver distributed_optimizer``.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from torch import nn
from torch.nn.parallel import DistributedDataParallel

from ddp_core.arguments import takes_group
from ddp_core.drivers.distributed_optimizer import DistributedOptimizerDriver, takes_a_class


class ShardedOptimizerDriver(DistributedOptimizerDriver):
    style = "sharded_optimizer"
    wraps_forward = True
    could_broadcast = True

    def __init__(self, build: Callable[..., Any], model: nn.Module, bucket_cap_mb: float, **options: Any) -> None:
        super().__init__(build, model, **options)
        group = options.get(takes_group(build) or "")  # an optimizer's own group is that of gradients, too
        self.wrapped = DistributedDataParallel(
            model, process_group=group, bucket_cap_mb=bucket_cap_mb, find_unused_parameters=True
        )

    @classmethod
    def fits(cls, wrapped: Any) -> bool:
        """Return whether it is a class or function with such an argument. What ``wrap(model)`` returned never is."""
        return takes_a_class(wrapped)

    @property
    def can_clip(self) -> bool:
        return True


DRIVER = ShardedOptimizerDriver
