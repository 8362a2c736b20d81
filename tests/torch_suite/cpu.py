"""Tests that were written for GPUs, run on the CPU: ``.cuda()``, ``.to(rank)`` and ``device=rank`` stay where they are.

Special here: it is done by replacing torch's functions inside one rank's process, which ends after its test. What a
test then still needs from a GPU (SyncBatchNorm's kernels, a device index) shows as a failure of torch's own DDP.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from types import ModuleType, SimpleNamespace
from typing import Any

import torch
from torch import nn
from torch.nn.parallel import DistributedDataParallel

FACTORIES = ("ones", "zeros", "empty", "full", "rand", "randn", "randint", "tensor", "arange", "eye")


class TorchOnCpu(DistributedDataParallel):
    """torch's own DDP for a model on the CPU: there is no device to name."""

    def __init__(self, module: nn.Module, device_ids: Any = None, output_device: Any = None, **options: Any) -> None:
        super().__init__(module, **options)


def move_to_cpu(tests: ModuleType) -> None:
    """In this process: no request for a GPU leaves the CPU."""
    torch.Tensor.cuda = lambda self, *args, **kwargs: self  # type: ignore[method-assign]
    torch.Tensor.to = _staying(torch.Tensor.to)  # type: ignore[method-assign]
    nn.Module.cuda = lambda self, *args, **kwargs: self  # type: ignore[method-assign]
    nn.Module.to = _staying(nn.Module.to)  # type: ignore[method-assign]
    for name in FACTORIES:
        setattr(torch, name, _staying(getattr(torch, name)))
    for name in ("set_device", "synchronize", "manual_seed"):
        setattr(torch.cuda, name, lambda *args, **kwargs: None)
    torch.cuda.current_device = lambda: 0
    vars(torch.accelerator)["current_stream"] = lambda *args: SimpleNamespace(wait_stream=lambda stream: None)
    vars(tests).update(
        init_multigpu_helper=lambda world_size, backend: {rank: [rank] for rank in range(world_size)},
        autocast=functools.partial(torch.amp.autocast, "cpu"),
        GradScaler=functools.partial(torch.amp.GradScaler, "cpu"),
    )


def _staying(function: Callable[..., Any]) -> Callable[..., Any]:
    """``function`` with every device that is a number, or CUDA's, replaced by the CPU."""

    @functools.wraps(function)
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        if "device" in kwargs and _is_gpu(kwargs["device"]):
            kwargs["device"] = "cpu"
        if len(args) == 2 and isinstance(args[0], torch.Tensor | nn.Module) and _is_gpu(args[1]):
            args = (args[0], "cpu")
        return function(*args, **kwargs)

    return wrapper


def _is_gpu(device: Any) -> bool:
    if isinstance(device, str):
        return device.startswith("cuda")
    if isinstance(device, torch.device):
        return device.type == "cuda"
    return isinstance(device, int) and not isinstance(device, bool)
