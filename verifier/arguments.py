"""What a stranger's ``wrap(model, ...)`` asks for besides the model, where nobody gave it and its name says what it is.

Special here: only arguments without a default are filled in. One that has a default was meant to be left alone.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

import torch.distributed as dist
from torch import nn

DEFAULT_BUCKET_MB = 25.0  # torch's

_RANK = ("rank", "global_rank", "local_rank")
_WORLD_SIZE = ("world_size", "num_replicas", "num_workers", "nprocs")
_GROUP = ("process_group", "group", "pg", "dp_group")
_BUCKET_MB = ("bucket_cap_mb", "bucket_size_mb", "bucket_mb")


def missing(wrap: Callable[..., Any], options: dict[str, Any]) -> list[str]:
    """Names of the arguments after the model that have no default and are not in ``options``."""
    try:
        after_model = list(inspect.signature(wrap).parameters.values())[1:]
    except (TypeError, ValueError):  # something that does not tell
        return []
    named = (p for p in after_model if p.kind in (p.POSITIONAL_OR_KEYWORD, p.KEYWORD_ONLY))
    return [p.name for p in named if p.default is p.empty and p.name not in options]


def filled(
    wrap: Callable[..., Any], options: dict[str, Any], model: nn.Module, bucket_cap_mb: float | None
) -> dict[str, Any]:
    """``options``, and what is missing and known by its name: ranks, groups, devices, a bucket's size in MiB.

    Raises TypeError, which names the rest, where something else is missing.
    """
    asked = missing(wrap, options)
    if not asked:
        return options
    known = {
        **dict.fromkeys(_RANK, dist.get_rank()),
        **dict.fromkeys(_WORLD_SIZE, dist.get_world_size()),
        **dict.fromkeys(_GROUP, dist.group.WORLD),
        **dict.fromkeys(_BUCKET_MB, bucket_cap_mb or DEFAULT_BUCKET_MB),
        "device_ids": None,
        "device": next(model.parameters()).device,
    }
    if unknown := [name for name in asked if name not in known]:
        flags = " ".join(f"--option {name}=VALUE" for name in unknown)
        raise TypeError(
            f"{getattr(wrap, '__name__', 'wrap')}() wants {', '.join(unknown)} besides the model: give it by {flags}, "
            "or write a wrap(model) that does"
        )
    return options | {name: known[name] for name in asked}
