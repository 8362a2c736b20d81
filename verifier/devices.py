"""Where ranks train: on the CPU over gloo, or on this machine's GPUs over NCCL.

Special here: ranks that outnumber the GPUs share them. NCCL refuses two ranks of one host on one GPU, so such ranks are
told that they are on hosts of their own (``NCCL_HOSTID``), to NCCL and by torchrun's variables alike, and meet over
loopback: slower, and the very same library, so what is verified on one GPU is what runs on eight. Whoever asks
for GPUs, by torch or without it, starts the driver in a thread, and cannot fork any more: the owner of a fork server
asks, and never the server.
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
BOTH: Backend = "cpu:gloo,cuda:nccl"  # as torch writes it, and what init_process_group() takes where nothing is said
DRIVERS = ("/dev/nvidiactl", "/dev/dxg", "/dev/kfd")  # NVIDIA's, its way through Windows, AMD's
HIDING = "CUDA_VISIBLE_DEVICES"  # empty: there are none. Ranks on the CPU are forked from a process that has met none


def chosen(request: Request) -> tuple[Device, Backend]:
    """The device and the backend that ``request`` gets: the CPU unless it asks for a GPU, and what goes with either.

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
    """Was the installed torch built for CUDA? Read from its ``version.py``, without importing it."""
    found = importlib.util.find_spec("torch")
    if found is None or found.origin is None:
        return False
    with suppress(OSError):
        text = (Path(found.origin).parent / "version.py").read_text(encoding="utf-8")
        return re.search(r"^(cuda|hip)\b[^=]*=\s*['\"]", text, re.MULTILINE) is not None
    return False


def torch_meets_a_driver() -> bool:
    """Would the first that asks torch for a GPU, also in vain, start a driver in its process?"""
    return torch_has_cuda() and any(Path(name).exists() for name in DRIVERS)


def num_visible() -> int:
    """How many GPUs a process that is started here sees, as NVIDIA's management library tells.

    That, too, starts the driver, in a thread: not to be asked in a process that forks.
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
    """How many GPUs this process sees, where ``scenario`` trains on them; None: on the CPU. Starts CUDA."""
    if scenario.device == "cpu":
        return None
    import torch

    return torch.cuda.device_count()


def settle(scenario: Scenario, *, one_host: bool = True) -> None:
    """Give this process its GPU, by the LOCAL_RANK that it was told. First thing in a rank, and in the reference.

    ``one_host``: other nodes than one were only told of, and are this machine.

    Raises:
        OSError: it sees no GPU.
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
    """Give this process its GPU, where no environment tells: it is ``rank`` of ``world_size`` on this machine."""
    import torch

    number = torch.cuda.device_count()
    torch.cuda.set_device(rank % number)
    if world_size > number:
        _be_another_host(str(rank // number))


def _be_another_host(name: str) -> None:
    """To NCCL, which then allows a rank of this process on a GPU that a rank of another host is on."""
    os.environ["NCCL_HOSTID"] = f"{socket.gethostname()}/{name}"
    os.environ.setdefault("NCCL_SOCKET_IFNAME", "lo")
