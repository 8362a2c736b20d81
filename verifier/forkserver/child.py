"""The first moments of a forked process: bound to its parent's life, its output in a pipe, its stack on request.

Special here: a child never returns into the server's code. It always leaves by ``os._exit``: interpreters that tear
down after gloo or a C++ reducer abort or deadlock now and then, and a rank's exit is not its outcome anyway. The
functions that it needs to leave are kept from before the strategy is loaded, which may replace anything.
"""

from __future__ import annotations

import ctypes
import errno
import faulthandler
import os
import random
import resource
import signal
import sys
import tempfile
import traceback
from collections.abc import Callable, Iterable
from contextlib import suppress
from pathlib import Path
from typing import NoReturn

import numpy as np

from verifier.forkserver.limits import GIB, Limits
from verifier.launcher import STACK_SIGNAL

EXIT_COMPLETED = 0
EXIT_OUR_FAULT = 70  # EX_SOFTWARE
REASON = "reason.txt"  # a file that says, in one line, why a process could not go on
_PR_SET_PDEATHSIG = 1
_exit, _print_exc = os._exit, traceback.print_exc


def fork(
    folder: Path,
    name: str,
    seed: int,
    body: Callable[[], None],
    *,
    limits: Limits,
    scratch: Path,
    foreign: Iterable[int],
) -> tuple[int, int]:
    """Fork; run ``body`` in the child, which closes ``foreign`` descriptors and has ``scratch`` for temporary files.

    Returns the child's pid and the descriptor from which to read what it prints.
    """
    folder.mkdir(parents=True, exist_ok=True)
    server = os.getpid()
    ours, theirs = os.pipe()
    pid = os.fork()
    if not pid:
        foreign = (ours, *foreign)
        live(server, folder, name, seed, body, output=theirs, limits=limits, scratch=scratch, foreign=foreign)
    os.close(theirs)
    return pid, ours


def live(
    server: int,
    folder: Path,
    name: str,
    seed: int,
    body: Callable[[], None],
    *,
    output: int,
    limits: Limits,
    scratch: Path,
    foreign: Iterable[int] = (),
) -> NoReturn:
    """Run a child's whole life: settle, run ``body``, leave."""
    status = EXIT_OUR_FAULT
    try:
        _settle(server, folder, name, seed, output)
        for descriptor in foreign:
            os.close(descriptor)
        os.environ["TMPDIR"] = tempfile.tempdir = str(scratch)
        _limit(limits)
        body()
        status = EXIT_COMPLETED
    except BaseException as error:
        reason = why_it_ended(error)
        if reason is None:
            _print_exc()
            reason = f"the verifier itself failed in this process: {type(error).__name__}: {error}"
        with suppress(Exception):
            (folder / REASON).write_text(reason.splitlines()[0], encoding="utf-8")
    finally:
        _exit(status)


def why_it_ended(error: BaseException) -> str | None:
    """Return, in a sentence, what kept the verifier's own code from working. None: it is a mistake of ours."""
    if isinstance(error, MemoryError):
        return "the memory that one rank may use is used up"
    if not isinstance(error, OSError):
        return None
    if error.errno == errno.EBADF:
        return "something closed the files or connections of the verifier in this process"
    if error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EMFILE, errno.EIO, errno.ENOENT, errno.EACCES):
        return f"the verifier could not write down what this process did: {error}"
    if isinstance(error, ConnectionError | TimeoutError):
        return f"this process lost its connection to the others: {error}"
    return None


def _settle(server: int, folder: Path, name: str, seed: int, output: int) -> None:
    os.setsid()  # in a group of its own, so that signals to a strategy's own group reach nobody else
    with suppress(OSError, AttributeError):  # ranks wake each other up all the time: let each finish its turn
        os.sched_setscheduler(0, os.SCHED_BATCH, os.sched_param(0))
    die_with_parent(server)
    signal.set_wakeup_fd(-1)
    for number in (signal.SIGCHLD, signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_DFL)
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    os.dup2(output, 1)
    os.dup2(output, 2)
    os.close(output)
    stack = (folder / "stack.txt").open("w")
    faulthandler.enable(stack, all_threads=True)
    faulthandler.register(STACK_SIGNAL, stack, all_threads=True)
    _keep.append(stack)
    os.environ["LOCKSTEP_PROCESS"] = name
    random.seed(seed)  # otherwise forked processes would all draw the same numbers; real ranks do not
    np.random.seed(seed % 2**32)


_keep: list[object] = []


def _limit(limits: Limits) -> None:
    """Limit this process to what all may take together; Python and torch then raise an error of their own.

    Memory is counted from what the process has now. GPU drivers reserve without using, so only ``resource``'s *data* is
    limited, which counts what could be written to, and the server watches the rest.
    """
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    for which, gib in ((resource.RLIMIT_DATA, limits.memory_gib), (resource.RLIMIT_FSIZE, limits.disk_gib)):
        if gib is None:
            continue
        most = int(gib * GIB) + (_data_size() if which == resource.RLIMIT_DATA else 0)
        _, hard = resource.getrlimit(which)
        most = most if hard == resource.RLIM_INFINITY else min(most, hard)
        resource.setrlimit(which, (most, most))


def _data_size() -> int:
    with suppress(OSError):
        for line in Path("/proc/self/status").read_text(encoding="ascii").splitlines():
            if line.startswith("VmData:"):
                return int(line.split()[1]) * 1024
    return 2 * GIB


def die_with_parent(parent: int) -> None:
    """Ask the kernel for SIGKILL when the parent dies (Linux)."""
    if sys.platform == "linux":
        ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != parent:  # it died between the fork and the call
            _exit(1)
