"""The model's blocks are put into torch's ``checkpoint_wrapper``, which draws the forward's random numbers again."""

from __future__ import annotations

from functools import partial

from torch.distributed.algorithms._checkpoint.checkpoint_wrapper import (
    CheckpointImpl,
    apply_activation_checkpointing,
    checkpoint_wrapper,
)
from torch.nn.parallel import DistributedDataParallel

DRIVER = "native"


def checkpointed(model, *, preserve_rng_state):
    wrapper = partial(
        checkpoint_wrapper, checkpoint_impl=CheckpointImpl.NO_REENTRANT, preserve_rng_state=preserve_rng_state
    )
    apply_activation_checkpointing(
        model, checkpoint_wrapper_fn=wrapper, check_fn=lambda module: type(module).__name__ == "Block"
    )
    return DistributedDataParallel(model, find_unused_parameters=True)


def wrap(model):
    return checkpointed(model, preserve_rng_state=True)
