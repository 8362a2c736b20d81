"""Every linear layer is put into torch's ``checkpoint_wrapper``, inside the model, and torch's DDP around all of it.

The parameters are the same ones under longer names, and are saved under the old ones.
"""

from __future__ import annotations

from functools import partial

from torch import nn
from torch.distributed.algorithms._checkpoint.checkpoint_wrapper import (
    CheckpointImpl,
    apply_activation_checkpointing,
    checkpoint_wrapper,
)
from torch.nn.parallel import DistributedDataParallel

DRIVER = "native"


def wrap(model):
    apply_activation_checkpointing(
        model,
        checkpoint_wrapper_fn=partial(checkpoint_wrapper, checkpoint_impl=CheckpointImpl.NO_REENTRANT),
        check_fn=lambda module: isinstance(module, nn.Linear),
    )
    return DistributedDataParallel(model, find_unused_parameters=True)
