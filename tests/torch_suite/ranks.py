"""Run one test on real ranks: processes that are forked for it, talk over gloo, and are gone afterwards.

Special here: torch's own machinery spawns, and each rank then imports torch's test support for three seconds; forked
ranks start at once. No rank outlives its test: they are killed at the time limit, soon after another rank has failed,
and by the kernel if this process ends. Ranks that are done wait for the others before they close their connections.
"""

from __future__ import annotations

import contextlib
import ctypes
import multiprocessing
import os
import signal
import sys
import tempfile
import time
import traceback
import warnings
from datetime import timedelta
from multiprocessing.connection import Connection, wait
from pathlib import Path
from types import ModuleType
from typing import Any, Literal, NamedTuple

Subject = Literal["torch", "ours", "ours, lenient"]
GRACE_S = 2.0  # between the first failure and the end of the other ranks


class Result(NamedTuple):
    """How a test ended. ``text``: what is not applicable, or the end of the traceback."""

    outcome: Literal["passed", "failed", "not applicable"]
    text: str = ""


def run_test(tests: ModuleType, test: str, subject: Subject, world_size: int, limit_s: float) -> Result:
    """Run ``test`` of the loaded module ``tests`` with ``subject`` in the place of DDP."""
    fork = multiprocessing.get_context("fork")
    with tempfile.TemporaryDirectory() as folder:
        for name in ("barrier", "test_dir", "init_dir"):
            (Path(folder) / name).mkdir()
        ends, processes = [], []
        for rank in range(world_size):
            here, there = fork.Pipe()
            settings = (tests, test, subject, rank, world_size, limit_s, folder, there)
            process = fork.Process(target=_rank, args=settings, daemon=True)
            process.start()
            there.close()
            ends.append(here)
            processes.append(process)
        try:
            return _watch(ends, time.monotonic() + limit_s, limit_s)
        finally:
            for process in processes:
                process.join(0.5)
                process.kill()
                process.join()


def _watch(ends: list[Connection], deadline: float, limit_s: float) -> Result:
    """The first result that is not "passed" counts: the other ranks' troubles follow from it."""
    waiting, bad = list(ends), None
    while waiting and time.monotonic() < deadline:
        for end in wait(waiting, timeout=max(0.0, deadline - time.monotonic())):
            assert isinstance(end, Connection)
            waiting.remove(end)
            try:
                result = Result(*end.recv())
            except EOFError:
                result = Result("failed", "the rank's process died")
            if result.outcome != "passed" and (bad is None or result.outcome == "not applicable"):
                deadline = min(deadline, time.monotonic() + GRACE_S)
                bad = result
    if bad is not None:
        return bad
    if waiting:
        return Result("failed", f"no end after {limit_s:g} s")
    for end in ends:
        with contextlib.suppress(OSError):
            end.send("all are done")
    return Result("passed")


def _rank(
    tests: ModuleType, test: str, subject: Subject, rank: int, world_size: int, limit_s: float, folder: str, end: Any
) -> None:
    _end_with_parent()
    with Path(os.devnull).open("w") as nowhere:
        os.dup2(nowhere.fileno(), sys.stdout.fileno())
        os.dup2(nowhere.fileno(), sys.stderr.fileno())
    os.environ["TEMP_DIR"] = folder
    end.send(tuple(_outcome(tests, test, subject, rank, world_size, limit_s, folder)))
    if end.poll(limit_s):
        end.recv()
    os._exit(0)


def _outcome(
    tests: ModuleType, test: str, subject: Subject, rank: int, world_size: int, limit_s: float, folder: str
) -> Result:
    from tests.torch_suite.ours import NotApplicable

    try:
        _prepare(tests, subject, rank, world_size, limit_s, folder)
        case = _case(tests, test, rank)
        getattr(type(case), test)(case)
    except NotApplicable as reason:
        return Result("not applicable", str(reason))
    except BaseException:
        return Result("failed", traceback.format_exc())
    return Result("passed")


def _prepare(tests: ModuleType, subject: Subject, rank: int, world_size: int, limit_s: float, folder: str) -> None:
    import torch
    import torch.distributed as dist
    from torch.testing._internal.common_utils import set_rng_seed

    from tests.torch_suite.cpu import TorchOnCpu, move_to_cpu
    from tests.torch_suite.ours import Ours

    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    store = dist.FileStore(str(Path(folder) / "store"), world_size)
    timeout = timedelta(seconds=limit_s)
    dist.init_process_group("gloo", store=store, rank=rank, world_size=world_size, timeout=timeout)
    move_to_cpu(tests)
    Ours.lenient = subject == "ours, lenient"
    wrapper = TorchOnCpu if subject == "torch" else Ours
    for module in (torch.nn.parallel, tests):  # the two places where the tests find DDP
        vars(module)["DistributedDataParallel"] = wrapper
    set_rng_seed()


def _case(tests: ModuleType, test: str, rank: int) -> Any:
    case_class = type("Case", (tests.TestDistBackend, tests.DistributedTest._DistTestBase), {})
    case = case_class(test)
    case.rank, case.file_name = rank, str(Path(os.environ["TEMP_DIR"]) / "file")
    return case


def _end_with_parent() -> None:
    """Linux ends this process when its parent ends, however that ends."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(1, signal.SIGKILL)
