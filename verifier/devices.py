"""Where ranks train: on the CPU over gloo, or on this machine's GPUs over NCCL.

Special here: ranks that outnumber the GPUs share them. NCCL refuses two ranks of one host on one GPU, so such ranks are
declared to be on separate hosts, both to NCCL (``NCCL_HOSTID``) and in torchrun's variables, and meet over loopback.
That is slower but uses the same library, so what is verified on one GPU is what runs on eight. Asking for GPUs, with or
without torch, starts the driver in a thread; that process cannot fork any more. So the owner of a fork server asks, and
never the server.
"""

from __future__ import annotations

import ctypes
import errno
import importlib.util
import os
import re
import socket
from contextlib import suppress
from itertools import takewhile
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from verifier.errors import UsageError

if TYPE_CHECKING:
    from verifier.request import Request
    from verifier.scenario import Scenario

Device = Literal["cpu", "cuda"]
Backend = Literal["gloo", "nccl", "cpu:gloo,cuda:nccl"]
BOTH: Backend = "cpu:gloo,cuda:nccl"  # as torch writes it; the default of init_process_group()
DRIVERS = ("/dev/nvidiactl", "/dev/dxg", "/dev/kfd")  # NVIDIA's, NVIDIA's under WSL, AMD's
HIDING = "CUDA_VISIBLE_DEVICES"  # if empty, none is visible. CPU ranks are forked from a process that never saw a GPU


def chosen(request: Request) -> tuple[Device, Backend]:
    """The device and the backend that ``request`` gets: the CPU unless it asks for a GPU, and the backend for it.

    Raises:
        UsageError: it asks for NCCL on the CPU.
    """
    of_gpus = request.backend in ("nccl", BOTH)
    device: Device = "cuda" if request.device == "cuda" or of_gpus else "cpu"
    if request.device == "cpu" and of_gpus:
        raise UsageError(
            f"backend '{request.backend}' is one of GPUs, and device 'cpu' was asked for. Say --device cuda."
        )
    if request.backend == "auto":
        return device, "nccl" if device == "cuda" else "gloo"
    return device, request.backend


def require_gpus() -> int:
    """How many GPUs ranks on this machine may use.

    Raises:
        UsageError: none, or this torch cannot use them; with what to do.
    """
    if not torch_has_cuda():
        raise UsageError(
            "device 'cuda' needs a torch that was built for CUDA, and the one installed here is for CPUs. Install "
            "torch from its default index (pip install torch), or choose --device cpu."
        )
    if not (number := num_visible()):
        visible = os.environ.get(HIDING)
        reason = "no NVIDIA driver or GPU was found here" if visible is None else f"{HIDING}={visible} hides them all"
        raise UsageError(f"device 'cuda' needs a GPU, and {reason}. Choose --device cpu.")
    return number


def torch_has_cuda() -> bool:
    """Return whether the installed torch was built for CUDA, read from its ``version.py`` without importing it."""
    found = importlib.util.find_spec("torch")
    if found is None or found.origin is None:
        return False
    with suppress(OSError):
        text = (Path(found.origin).parent / "version.py").read_text(encoding="utf-8")
        return re.search(r"^(cuda|hip)\b[^=]*=\s*['\"]", text, re.MULTILINE) is not None
    return False


def torch_meets_a_driver() -> bool:
    """Return whether asking torch for a GPU, even in vain, would start a driver in the process."""
    return torch_has_cuda() and any(Path(name).exists() for name in DRIVERS)


def num_visible() -> int:
    """How many GPUs a process that is started here sees, according to NVIDIA's management library.

    The library starts the driver in a thread, too: do not call this in a process that forks.
    """
    visible = os.environ.get(HIDING)
    if visible is not None:
        return len([*takewhile(lambda name: name.strip() and not name.startswith("-"), visible.split(","))])
    count = ctypes.c_uint(0)
    try:
        nvml = ctypes.CDLL("libnvidia-ml.so.1")
        if nvml.nvmlInit_v2() or nvml.nvmlDeviceGetCount_v2(ctypes.byref(count)):
            return 0
    except (OSError, AttributeError):
        return 0
    return count.value


def num_gpus(scenario: Scenario) -> int | None:
    """How many GPUs this process sees if ``scenario`` trains on GPUs, which starts CUDA; None if on the CPU."""
    if scenario.device == "cpu":
        return None
    import torch

    return torch.cuda.device_count()


def settle(scenario: Scenario, *, one_host: bool = True) -> None:
    """Give this process its GPU, by its LOCAL_RANK. The first call in a rank, and in the reference.

    ``one_host``: all nodes are this machine, whatever the environment says.

    Raises:
        OSError: the process sees no GPU.
    """
    if scenario.device == "cpu":
        return
    import torch

    if not torch.cuda.device_count():
        raise OSError(errno.ENODEV, "this process sees no GPU")
    torch.cuda.set_device(int(os.environ.get("LOCAL_RANK", "0")))
    if one_host and int(os.environ.get("GROUP_WORLD_SIZE", "1")) > 1:
        _be_another_host(os.environ["GROUP_RANK"])


def share(rank: int, world_size: int) -> None:
    """Give this process its GPU as ``rank`` of ``world_size`` on this machine, without reading the environment."""
    import torch

    number = torch.cuda.device_count()
    torch.cuda.set_device(rank % number)
    if world_size > number:
        _be_another_host(str(rank // number))


def _be_another_host(name: str) -> None:
    """Declare this process to NCCL as on another host, so that it may use a GPU that another rank uses."""
    os.environ["NCCL_HOSTID"] = f"{socket.gethostname()}/{name}"
    os.environ.setdefault("NCCL_SOCKET_IFNAME", "lo")
