"""Sharded optimizer: the strategy builds an optimizer from parameters and a class, as ZeroRedundancyOptimizer does.

The strategy is a class or function ``(parameters, optimizer_class, ...)``, told by its second argument. It is held to
its own part: gradients are reduced by torch's DDP around the model. One that reduces them itself would be hidden by
that, and is driven with ``--driver distributed_optimizer``.
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
        group = options.get(takes_group(build) or "")  # one that the optimizer is given is that of the gradients, too
        self.wrapped = DistributedDataParallel(
            model, process_group=group, bucket_cap_mb=bucket_cap_mb, find_unused_parameters=True
        )

    @classmethod
    def fits(cls, wrapped: Any) -> bool:
        """A class or function whose second argument is named so. What ``wrap(model)`` returned never is."""
        return takes_a_class(wrapped)

    @property
    def can_clip(self) -> bool:
        return True


DRIVER = ShardedOptimizerDriver
