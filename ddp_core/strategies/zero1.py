"""torch's own ZeRO stage 1: gradients as in DDP, optimizer state spread over the ranks.

Each rank's optimizer updates the parameters that it owns and broadcasts them; so the state of Adam takes 1/W of the
memory, for one broadcast of the parameters a step. After Rajbhandari et al., "ZeRO: Memory Optimizations Toward
Training Trillion Parameter Models", SC 2020 (https://arxiv.org/abs/1910.02054), by ``ZeroRedundancyOptimizer``.

Special here: the strategy is an *optimizer*. ``wrap`` leaves the gradients to torch's DDP, and ``wrap_optimizer``
returns the optimizer to use instead of the loop's own; a loop that does not call it trains with plain DDP.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch
from torch import nn
from torch.distributed.optim import ZeroRedundancyOptimizer
from torch.nn.parallel import DistributedDataParallel

from ddp_core.strategy import Contract

CONTRACT = Contract(sharded=True, disclaims=frozenset({"state_dict"}))


class Zero1(DistributedDataParallel):
    """torch's DDP, with a method that makes the sharded optimizer."""

    def wrap_optimizer(
        self, cls: type[torch.optim.Optimizer], parameters: Iterable[nn.Parameter], **options: Any
    ) -> torch.optim.Optimizer:
        """An optimizer of class ``cls`` whose state is spread over the ranks."""
        return ZeroRedundancyOptimizer(parameters, optimizer_class=cls, process_group=self.process_group, **options)


def wrap(model: nn.Module, **options: Any) -> Zero1:
    return Zero1(model, **options)
