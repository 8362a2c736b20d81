"""Several scenarios one after the other in the same processes, like acts on one stage.

Special here: forking, meeting and leaving take longer than a small scenario, so ``quick`` pays for them once. The price
is kept small. Acts after the first begin in processes that have already run a strategy. So the performance ends when
anything visible was left there (another process group or default dtype, a hook on every module, a thread). A finding of
a later act does not count: the scenario is then run again in processes of its own, and these decide (``engine``).
"""

from __future__ import annotations

import os
import random
import signal
import threading
from collections.abc import Sequence
from contextlib import suppress
from datetime import timedelta
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.distributed as dist
from torch.nn.modules import module as modules
from torch.optim import optimizer as optimizers

from verifier.journal import Journal
from verifier.observe import kernels
from verifier.observe.delay import Delay
from verifier.observe.observer import Observer
from verifier.run.importing import import_first
from verifier.run.loading import StrategyError
from verifier.run.reference import run_reference
from verifier.scenario import Scenario
from verifier.worker import Subject

LINGER_S = 2.0
RAISED_LINGER_S = 1.0


def play(scenarios: Sequence[Scenario], rank: int, store: dist.Store, folders: Sequence[Path]) -> None:
    """Be rank ``rank`` in each scenario; stop after one that not all ranks completed, or that left something behind."""
    first = scenarios[0]
    _join(first, rank, store, folders[0])
    before = _process_wide() if len(scenarios) > 1 else None
    for number, (scenario, folder) in enumerate(zip(scenarios, folders, strict=True)):
        if number:
            _reseed(scenario.seed * 1009 + rank)
        meeting = dist.PrefixStore(f"act {number}", store)
        if not run_rank(scenario, rank, meeting, folder, joined=True) or number == len(scenarios) - 1:
            return
        if before is None or _process_wide() != before:
            return


def run_rank(scenario: Scenario, rank: int, store: dist.Store, folder: Path, *, joined: bool = False) -> bool:
    """Run ``scenario`` as rank ``rank`` and write ``folder``. ``joined``: the process group exists already.

    Returns whether all ranks completed, as far as is known here. Raises nothing that the strategy caused.
    """
    journal = Journal(folder)
    journal.note("pid", os.getpid())
    if scenario.device == "cuda":
        mine = torch.cuda.get_device_properties()
        journal.note("gpu", [str(mine.uuid), mine.name])
    try:
        if not joined:
            _join(scenario, rank, store, folder)
        delay = Delay(scenario.seed, rank, scenario.world_size, scenario.delay_ms) if scenario.delay_ms else None
        observer = Observer(
            journal, folder / "board", poison=scenario.poison, keep_payloads=scenario.keep_payloads, delay=delay
        )
        kernels.install(observer)
        subject = Subject(scenario, rank, folder, journal, observer)
        subject.store = store
        subject.run()
        observer.end()
        journal.note("observer", {"calls": observer.num_calls, "bytes": observer.num_bytes, "s": observer.overhead_s})
        journal.outcome("completed")
        return leave_together(store, scenario.world_size)
    except StrategyError as error:
        journal.outcome("raised", error.detail, when=error.when, error=error.kind)
        stay_until_all_have_raised(store, scenario.world_size)
        return False


def _join(scenario: Scenario, rank: int, store: dist.Store, folder: Path) -> None:
    """Connect to all other ranks, and begin when all are connected. Without that, a rank whose strategy raises or exits
    at once would be gone while another still connects to it, and that would look like a failure of ours.
    """
    if scenario.imported_first:
        import_first(scenario.strategy, folder)
    dist.init_process_group(scenario.backend, store=store, rank=rank, world_size=scenario.world_size)
    if store.add("lockstep/joined", 1) == scenario.world_size:
        store.set("lockstep/all_joined", "1")
    else:
        store.wait(["lockstep/all_joined"])


def leave_together(store: dist.Store, world_size: int) -> bool:
    """Stay until all ranks have completed, or for ``LINGER_S``; return whether they have. A rank that leaves closes its
    connections, and would break a collective that a peer still has under way (one that was not waited for, say).
    """
    if store.add("lockstep/completed", 1) == world_size:
        store.set("lockstep/all_completed", "1")
        return True
    with suppress(Exception):
        store.wait(["lockstep/all_completed"], timedelta(seconds=LINGER_S))
        return True
    return False


def stay_until_all_have_raised(store: dist.Store, world_size: int) -> None:
    """Stay until all ranks have raised, or for ``RAISED_LINGER_S``. A rank that leaves closes its connections; a peer
    that is about to raise the same refusal, but still connects a group, would then fail with a connection error.

    This runs in its own thread, because another thread of the strategy's may hold the store.
    """

    def stay() -> None:
        with suppress(Exception):
            if store.add("lockstep/raised", 1) == world_size:
                store.set("lockstep/all_raised", "1")
            store.wait(["lockstep/all_raised"], timedelta(seconds=RAISED_LINGER_S))

    thread = threading.Thread(target=stay, daemon=True)
    thread.start()
    thread.join(2 * RAISED_LINGER_S)


def play_references(scenarios: Sequence[Scenario], folders: Sequence[Path]) -> list[dict[str, Any]]:
    """Run the reference of each scenario; return the seals of what each has written."""
    return [run_reference(scenario, folder) for scenario, folder in zip(scenarios, folders, strict=True)]


def _reseed(seed: int) -> None:
    random.seed(seed)
    np.random.seed(seed % 2**32)


def _process_wide() -> list[Any] | None:
    """Return ``process_wide()``, or None where it fails: a strategy may replace anything, or remove the folder."""
    with suppress(Exception):
        return process_wide()
    return None


def process_wide() -> list[Any]:
    """Return what a strategy can set for a whole process, as far as that is cheap to read."""
    settings = (
        torch.get_default_dtype(),
        torch.get_num_threads(),
        torch.is_grad_enabled(),
        torch.is_inference_mode_enabled(),
        torch.is_anomaly_enabled(),
        torch.is_autocast_enabled("cpu"),
        torch.are_deterministic_algorithms_enabled(),
        torch.get_float32_matmul_precision(),
        torch.nn.Module.__call__,
        torch.Tensor.backward,
        torch.autograd.backward,
        torch.optim.Optimizer.zero_grad,
        dist.group.WORLD,
        *(getattr(dist, name) for name in ("all_reduce", "broadcast", "all_gather", "reduce_scatter", "barrier")),
    )
    hooks = [
        len(table)
        for home in (modules, optimizers)
        for name, table in vars(home).items()
        if name.startswith("_global_") and name.endswith("_hooks")
    ]
    around = (Path.cwd(), dict(os.environ), {thread.ident for thread in threading.enumerate()})
    handlers = [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM, signal.SIGUSR2, signal.SIGALRM)]
    return [*settings, hooks, *around, handlers]
