"""Fills in what a stranger's ``wrap(model, ...)`` asks for besides the model, if no option gives it and its name is
known.

Special here: only arguments without a default are filled in. One that has a default was meant to be left alone, except
a process group: one scenario passes a smaller one to see what comes of it.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist
from torch import nn

from ddp_core.methods import NotDrivable

DEFAULT_BUCKET_MB = 25.0  # torch's

OPTIMIZERS = ("optimizer", "optim", "opt", "base_optimizer", "inner_optimizer")
_CLASS = ("_class", "_cls", "_type")
_RANK = ("rank", "global_rank")
_LOCAL_RANK = "local_rank"
_WORLD_SIZE = (
    *("world_size", "world", "num_replicas", "num_ranks", "num_workers", "num_processes", "nprocs"),
    *("dp_size", "dp_world_size", "num_gpus", "n_gpus"),
)
_MODEL = ("model", "module", "net", "network")
_GROUP = ("process_group", "group", "pg", "dp_group", "dp_pg", "dp_process_group", "data_parallel_group")
_OF_THE_JOB = (*_RANK, _LOCAL_RANK, *_WORLD_SIZE, *_GROUP)
_BUCKET_MB = ("bucket_cap_mb", "bucket_size_mb", "bucket_mb")


def names_an_optimizer(name: str | None) -> bool:
    """Return whether an argument of this name is an optimizer, and not the class of one."""
    return name is not None and (name in OPTIMIZERS or ("optimizer" in name and not name.endswith(_CLASS)))


def missing(wrap: Callable[..., Any], options: dict[str, Any], num_given: int = 1) -> list[str]:
    """Return the arguments after the first ``num_given`` that have no default and are not in ``options``, by name."""
    try:
        others = list(inspect.signature(wrap).parameters.values())[num_given:]
    except (TypeError, ValueError):  # a callable without a signature
        return []
    named = (p for p in others if p.kind in (p.POSITIONAL_OR_KEYWORD, p.KEYWORD_ONLY))
    return [p.name for p in named if p.default is p.empty and p.name not in options]


def known_names(function: Callable[..., Any]) -> list[str]:
    """Return the arguments that have no default, and name a rank, a world size, a group or a bucket's size."""
    return [name for name in missing(function, {}, 0) if name in (*_OF_THE_JOB, *_BUCKET_MB)]


def takes_group(wrap: Callable[..., Any]) -> str | None:
    """Return the name of ``wrap``'s argument for a process group, without a default or with None. None: there is none.

    An argument for a rank or a world size beside it would be ambiguous: the group's, or the job's. And a ``group`` with
    another default is no process group.
    """
    try:
        parameters = inspect.signature(wrap).parameters
    except (TypeError, ValueError):
        return None
    if {*parameters} & {*_RANK, *_WORLD_SIZE}:
        return None
    return next((n for n, p in parameters.items() if n in _GROUP and p.default in (p.empty, None)), None)


def model_by_name(wrap: Callable[..., Any]) -> str | None:
    """Return the name of ``wrap``'s argument for the model if a rank or the like comes first. None: it is the first."""
    try:
        parameters = list(inspect.signature(wrap).parameters.values())
    except (TypeError, ValueError):
        return None
    first = next((p.name for p in parameters if p.kind is not p.KEYWORD_ONLY), None)
    if first is not None and first not in (*_OF_THE_JOB, "device"):
        return None
    return next((p.name for p in parameters if p.name in _MODEL), None)


def filled(
    wrap: Callable[..., Any],
    options: dict[str, Any],
    model: nn.Module,
    bucket_cap_mb: float | None,
    *,
    num_given: int = 1,
    make_optimizer: Callable[[], torch.optim.Optimizer] | None = None,
) -> dict[str, Any]:
    """Return ``options`` with the missing arguments that are known by name: ranks, groups, devices, a bucket's size in
    MiB, the model and its named parameters; and an optimizer, if ``make_optimizer`` is given.

    Raises NotDrivable if other arguments are missing; the message names them.
    """
    asked = missing(wrap, options, num_given)
    if not asked:
        return options
    known = {
        **dict.fromkeys(_RANK, dist.get_rank()),
        _LOCAL_RANK: dist.get_node_local_rank(fallback_rank=dist.get_rank()),
        **dict.fromkeys(_WORLD_SIZE, dist.get_world_size()),
        **dict.fromkeys(_GROUP, dist.group.WORLD),
        **dict.fromkeys(_BUCKET_MB, bucket_cap_mb or DEFAULT_BUCKET_MB),
        "device_ids": None,
        "device": next(model.parameters()).device,
        "named_parameters": list(model.named_parameters()),
        **dict.fromkeys(_MODEL, model),
    }
    if make_optimizer is not None and any(map(names_an_optimizer, asked)):
        known |= dict.fromkeys(filter(names_an_optimizer, asked), make_optimizer())
    if "bucket" in asked:
        raise NotDrivable(
            f"{getattr(wrap, '__name__', 'this')} looks like a communication hook: torch takes a plain function "
            "(state, bucket) for one; write it as such, or a wrap(model) that registers it"
        )
    if unknown := [name for name in asked if name not in known]:
        flags = " ".join(f"--option {name}=VALUE" for name in unknown)
        raise NotDrivable(
            f"{getattr(wrap, '__name__', 'wrap')}() wants {', '.join(unknown)} besides the model: give it by {flags}, "
            "or write a wrap(model) that does; a whole loop, or what is built without a model, goes into a "
            "ddp_core.Driver (docs/driving.md)"
        )
    return options | {name: known[name] for name in asked}
