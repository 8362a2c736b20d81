"""The first moments of a forked process: bound to its parent's life, its output in a file, its stack on request.

Special here: a child never returns into the server's code. It leaves by ``os._exit`` whatever happens: interpreters
that tear down after gloo or a C++ reducer abort or deadlock now and then, and a rank's exit is not its outcome anyway.
"""

from __future__ import annotations

import ctypes
import faulthandler
import os
import random
import signal
import sys
import traceback
from collections.abc import Callable
from pathlib import Path

import numpy as np

STACK_SIGNAL = signal.SIGUSR2
EXIT_COMPLETED = 0
EXIT_OUR_FAULT = 70  # EX_SOFTWARE
_PR_SET_PDEATHSIG = 1


def fork(folder: Path, name: str, seed: int, body: Callable[[], None]) -> int:
    """Fork; run ``body`` in the child with its output in ``folder``; return the child's pid."""
    folder.mkdir(parents=True, exist_ok=True)
    server = os.getpid()
    pid = os.fork()
    if pid:
        return pid
    status = EXIT_OUR_FAULT
    try:
        _settle(server, folder, name, seed)
        body()
        status = EXIT_COMPLETED
    except BaseException:
        traceback.print_exc()
    finally:
        try:
            sys.stdout.flush()
            sys.stderr.flush()
        finally:
            os._exit(status)


def _settle(server: int, folder: Path, name: str, seed: int) -> None:
    os.setsid()  # a group of its own: whatever the strategy starts can be ended with it
    die_with_parent(server)
    signal.set_wakeup_fd(-1)
    for number in (signal.SIGCHLD, signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_DFL)
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    output = os.open(folder / "output.txt", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
    os.dup2(output, 1)
    os.dup2(output, 2)
    stack = (folder / "stack.txt").open("w")
    faulthandler.enable(stack, all_threads=True)
    faulthandler.register(STACK_SIGNAL, stack, all_threads=True)
    _keep.append(stack)
    os.environ["LOCKSTEP_PROCESS"] = name
    random.seed(seed)  # forked processes would all draw the same numbers; real ranks do not
    np.random.seed(seed % 2**32)


_keep: list[object] = []


def die_with_parent(parent: int) -> None:
    """Ask the kernel for SIGKILL when the parent dies (Linux)."""
    if sys.platform == "linux":
        ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != parent:  # it died between the fork and the call
            os._exit(1)
