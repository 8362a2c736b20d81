"""Why a situation is not for what ``wrap`` has made, as is known once it is made.

Special here: what torch itself gets wrong without an error is no mistake of whoever uses it, and is said all the same.
A static graph's first all-reduce is started by what torch puts behind each tensor of the output that it finds.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import torch
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from ddp_core.drivers.fully_shard import FullyShardDriver
from verifier.run import clipping

if TYPE_CHECKING:
    from verifier.worker import Subject

STATIC_GRAPH = (
    "DistributedDataParallel(static_graph=True) does not look into dataclasses, and reduces nothing, ever, where a "
    "model returns one: pytorch/pytorch#106690, huggingface/transformers#25357"
)

KEPT_APART = (
    "fully_shard keeps what it has accumulated while set_requires_gradient_sync(False) beside .grad, where "
    "zero_grad() does not find it: it is in the next step's gradients"
)

SQUARES_OVERFLOW = (
    "torch's clip_grad_norm_() adds up the squares of what shards' norms are in their own dtype, and float16 does not "
    "hold these: what is clipped by infinity is 0"
)


def why_not(subject: Subject) -> str | None:
    """Why the scenario is not for this; None: it is."""
    if subject.scenario.dataclass_outputs and _is_static(subject.driver.wrapped):
        return STATIC_GRAPH
    if subject.scenario.drop_quiet_before is not None and _is_fully_sharded(subject.driver.wrapped):
        return KEPT_APART
    by_torch = subject.scenario.clip_norm is not None and subject.driver.own_clip is None
    halves = any(parameter.dtype is torch.float16 for _, parameter in subject.parameters)
    if by_torch and halves and _is_fully_sharded(subject.driver.wrapped):
        return SQUARES_OVERFLOW
    return clipping.why_not(subject)


def _is_static(wrapped: object) -> bool:
    """Is torch's DDP with a static graph in ``wrapped``?"""
    return any(isinstance(module, DistributedDataParallel) and module.static_graph for module in _modules(wrapped))


def _is_fully_sharded(wrapped: object) -> bool:
    """Has torch's ``fully_shard`` been at a module in ``wrapped``?"""
    return any(map(FullyShardDriver.fits, _modules(wrapped)))


def _modules(wrapped: object) -> Iterator[nn.Module]:
    """All modules in ``wrapped``, or among what a stranger's engine holds."""
    held = [wrapped] if isinstance(wrapped, nn.Module) else list(getattr(wrapped, "__dict__", {}).values())
    return (module for one in held if isinstance(one, nn.Module) for module in one.modules())
