"""Why a situation is not run on what ``wrap`` has made, as far as that is known then.

Special here: what torch itself gets wrong without an error is not a mistake of the strategy, but it is reported. With a
static graph, DDP's first all-reduce is started by a node that torch puts behind each output tensor that it finds.
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
    """Return why the scenario is not run on this strategy. None: it is."""
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
    """Return whether ``wrapped`` contains torch's DDP with a static graph."""
    return any(isinstance(module, DistributedDataParallel) and module.static_graph for module in _modules(wrapped))


def _is_fully_sharded(wrapped: object) -> bool:
    """Return whether torch's ``fully_shard`` was applied to a module in ``wrapped``."""
    return any(map(FullyShardDriver.fits, _modules(wrapped)))


def _modules(wrapped: object) -> Iterator[nn.Module]:
    """Yield all modules in ``wrapped``, or in the attributes of a stranger's engine."""
    held = [wrapped] if isinstance(wrapped, nn.Module) else list(getattr(wrapped, "__dict__", {}).values())
    return (module for one in held if isinstance(one, nn.Module) for module in one.modules())
