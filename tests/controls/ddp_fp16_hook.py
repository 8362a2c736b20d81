"""torch's DDP with torch's own hook for float16 on the wire, and a contract that says so."""

from __future__ import annotations

from torch.distributed.algorithms.ddp_comm_hooks.default_hooks import fp16_compress_hook
from torch.nn.parallel import DistributedDataParallel

from ddp_core import Contract

DRIVER = "native"
CONTRACT = Contract(lossy="float16", disclaims={"complex_parameters"})


def wrap(model):
    wrapped = DistributedDataParallel(model, find_unused_parameters=True)
    wrapped.register_comm_hook(None, fp16_compress_hook)
    return wrapped
