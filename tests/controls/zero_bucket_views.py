"""torch's ``ZeroRedundancyOptimizer`` with parameters as views of its buckets: weights move in memory."""

from __future__ import annotations

from torch.distributed.optim import ZeroRedundancyOptimizer
from torch.nn.parallel import DistributedDataParallel

from ddp_core import Contract

DRIVER = "optimizer_wrapper"
CONTRACT = Contract(sharded=True, disclaims={"state_dict", "mixed_dtypes", "strided_parameters"})


class Zero(DistributedDataParallel):
    def wrap_optimizer(self, cls, parameters, **options):
        return ZeroRedundancyOptimizer(parameters, optimizer_class=cls, parameters_as_bucket_view=True, **options)


def wrap(model):
    return Zero(model, find_unused_parameters=True)
