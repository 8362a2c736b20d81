"""What the fork server does once, so that no rank has to: import, and take one small training step.

Special here: a first optimizer imports some 800 modules, and a first backward initialises the autograd engine. All this
runs on one thread: a forked child inherits no threads, and would wait for them for ever. The garbage collector is off
meanwhile (importing torch makes a million objects and no garbage: a fifth of the time). The objects that exist at the
end are frozen, so that collections in ranks do not copy shared pages.
"""

from __future__ import annotations

import gc
import importlib
import json
import sys
import threading
import warnings
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Any

from verifier.catalogue import WORKLOADS
from verifier.devices import torch_meets_a_driver
from verifier.errors import OurFault
from verifier.forkserver.huge_pages import collapse
from verifier.request import Builtin, StrategyRef
from verifier.texts import imported_in, texts

EXIT_CONFIG = 78  # EX_CONFIG
OF_TORCH = ("torch.distributed.optim", "torch.distributed.checkpoint")  # slow to import, and starts no thread


def warm_up() -> None:
    gc.disable()
    _import_and_step()
    with suppress(ImportError, AttributeError):  # a cache that init_process_group() clears in each rank
        importlib.import_module("torch._dynamo.trace_rules").clear_lru_cache()
    gc.freeze()
    gc.enable()


def refuse_threads() -> None:
    """Refuse to fork beside other threads: a child would inherit the locks that they hold, and nobody to release them.

    Raises SystemExit, with what to do.
    """
    names = _threads()
    if len(names) > 1:
        print(
            f"ranks cannot be forked: the fork server has {len(names) - 1} other thread(s): {', '.join(names[1:])}. "
            "Something that every Python process loads here starts them (sitecustomize, a .pth file, LD_PRELOAD, a "
            "debugger or profiler). Take it out of the environment, or, slower, set LOCKSTEP_START_METHOD=spawn.",
            file=sys.stderr,
            flush=True,
        )
        sys.exit(EXIT_CONFIG)


def _threads() -> list[str]:
    """Return the names of this process's threads, Python's and others, the first one first."""
    named = {thread.native_id: thread.name for thread in threading.enumerate()}
    try:
        ids = sorted(int(path.name) for path in Path("/proc/self/task").iterdir())
    except OSError:
        return list(named.values())
    return [named.get(number) or Path(f"/proc/self/task/{number}/comm").read_text().strip() for number in ids]


def _import_and_step() -> None:
    import torch

    torch.set_num_threads(1)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        importlib.import_module("torch._dynamo")  # else every first optimizer imports it, in every rank
    importlib.import_module("verifier.run.acts")
    with suppress(OurFault):  # ranks meet the error, too, and report it in their recordings
        importlib.import_module("verifier.observe.kernels").prepare()
    for workload in ("exact", "branches", "llama"):
        importlib.import_module(f"verifier.workloads.{workload}")
    for strategy in ("naive", "flat", "hook", "async_hook", "bucketed", "torch_ddp"):
        importlib.import_module(f"ddp_core.strategies.{strategy}")
    importlib.import_module("ddp_core.recognition").styles()  # every rank looks at all of them
    # Even on the CPU a step asks for GPUs, hidden ones as well (the optimizer does, and the autograd engine, which has
    # threads for them). That starts the driver, in a thread. Ranks then take that step, ahead of time (``rehearse``).
    if not torch_meets_a_driver():
        _step()


@cache
def import_the_rest() -> None:
    """Import what only some scenarios need, once for all their ranks, while the owner is busy with its first answer;
    then make all further forks cheap.
    """
    for name in [f"verifier.workloads.{name}" for name in WORKLOADS.names()] + ["torch.utils.serialization.config"]:
        with suppress(Exception):  # ranks meet the error, too, and report it in their recordings
            importlib.import_module(name)
    gc.freeze()
    collapse()


def import_what_of_torch(strategy: StrategyRef) -> None:
    """Import what ``strategy`` (or a built-in's file) uses of torch: ``torch.distributed.optim`` takes half a second.

    No stranger's code is imported: the single process is forked from here as well, and must not know the strategy.
    """
    if strategy == _asked.get("last"):
        return
    _asked["last"], before = strategy, len(sys.modules)
    named = {name for text in texts(strategy) for _, name in imported_in(text) if name.startswith(OF_TORCH)}
    if isinstance(strategy, Builtin):
        named = {f"ddp_core.strategies.{strategy.name}"}
    for name in sorted(named):
        with suppress(Exception):  # most often the name of something in a module; ranks meet the others, too
            importlib.import_module(name)
    if len(sys.modules) > before:
        gc.freeze()


_asked: dict[str, StrategyRef] = {}


def rehearse() -> None:
    """Copy the pages that a step writes to, in a process that was forked ahead, before anybody waits for it.

    That is half of all that a small scenario copies. It leaves only what the server's own first step has left.
    """
    from verifier.journal import tensor_bytes
    from verifier.run.streams import states

    for tensor in _step():
        json.dumps({"digest": states(), "shape": list(tensor.shape), "numel": len(tensor_bytes(tensor))})


def _step() -> list[Any]:
    import torch
    from torch import nn

    model = nn.Sequential(nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 2))
    for make in (torch.optim.SGD, torch.optim.AdamW):
        optimizer = make(model.parameters(), lr=0.1)
        model(torch.ones(4, 8)).square().mean().backward()
        optimizer.step()
    return list(model.state_dict().values())
