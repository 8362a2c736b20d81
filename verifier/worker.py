"""What runs on one rank: build, wrap, train, write everything down. And the single process beside it.

Special here: this file judges nothing and compares nothing. It follows the scenario, drives the strategy through its
``Driver``, and leaves a journal; a rank that dies half-way leaves half a journal, which is still evidence.
"""

from __future__ import annotations

import os
import time
from contextlib import nullcontext, suppress
from datetime import timedelta
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import nn

from ddp_core.driver import Driver, recognise, styles
from verifier import fault as faults
from verifier import kernels
from verifier import workload as workloads
from verifier.journal import Journal
from verifier.loading import LoadedStrategy, StrategyError, load_strategy
from verifier.observer import Observer
from verifier.scenario import Scenario
from verifier.tags import TagBook
from verifier.workload import Workload

LINGER_S = 2.0


def run_rank(scenario: Scenario, rank: int, store: dist.Store, folder: Path) -> None:
    """Run ``scenario`` as rank ``rank``; write ``folder``. Raises nothing that the strategy caused."""
    journal = Journal(folder)
    journal.note("pid", os.getpid())
    try:
        dist.init_process_group(scenario.backend, store=store, rank=rank, world_size=scenario.world_size)
        observer = Observer(journal, folder / "board", poison=scenario.poison, keep_payloads=scenario.tagged)
        kernels.install(observer)
        Subject(scenario, rank, folder, journal, observer).run()
        journal.note("observer", {"calls": observer.num_calls, "bytes": observer.num_bytes, "s": observer.overhead_s})
        journal.outcome("completed")
        leave_together(store, scenario.world_size)
    except StrategyError as error:
        journal.outcome("raised", error.detail, when=error.when)


def leave_together(store: dist.Store, world_size: int) -> None:
    """Stay until all ranks have completed, or for a moment: one that leaves closes its connections, and a collective
    that a peer still has under way (it was not waited for, say) would then end in another way than it began.
    """
    if store.add("lockstep/completed", 1) == world_size:
        store.set("lockstep/all_completed", "1")
    else:
        with suppress(Exception):
            store.wait(["lockstep/all_completed"], timedelta(seconds=LINGER_S))


class Subject:
    """One rank's replica under the strategy."""

    def __init__(self, scenario: Scenario, rank: int, folder: Path, journal: Journal, observer: Observer) -> None:
        self.folder = folder
        self.scenario, self.rank, self.journal, self.observer = scenario, rank, journal, observer
        self.workload = workloads.load(scenario)
        torch.manual_seed(scenario.seed if scenario.same_start else scenario.seed + 1 + rank)
        self.model = self.workload.model(rank)
        self.tags = attach_tags(scenario, self.model, rank) if scenario.tagged else None
        describe(journal, self.model, self.workload)
        if not scenario.same_start:
            for name, parameter in self.model.named_parameters():
                journal.tensor("built", -1, name, parameter, keep=True)

    def run(self) -> None:
        strategy = load_strategy(self.scenario.strategy, self.folder, small_buckets=self.scenario.small_buckets)
        self.journal.note("contract", strategy.contract_dict())
        self.driver = self._wrap(strategy)
        self.parameters = [(n, p) for n, p in self.driver.named_parameters() if p.requires_grad]
        cls, options = self.workload.optimizer()
        try:
            self.optimizer = self.driver.make_optimizer(cls, [p for _, p in self.parameters], **options)
        except BaseException as error:
            raise StrategyError.of("while the optimizer was made", error) from error
        for step in range(self.scenario.num_steps):
            self._step(step)
        if self.tags is not None:
            self.journal.note("tags_fired", self.tags.num_fired > 0)
        if self.scenario.evaluate:
            self.journal.note("evaluation", self.workload.evaluate(self.model))

    def _wrap(self, strategy: LoadedStrategy) -> Driver:
        def wrap(model: nn.Module) -> Any:
            return strategy.wrap(model, **strategy.options)

        try:
            if self.scenario.fault is None:
                wrapped = wrap(self.model)
            else:
                wrapped = faults.load(self.scenario.fault).plant(self.model, wrap)
            driver = styles()[self.scenario.driver] if self.scenario.driver else recognise(wrapped)
        except BaseException as error:
            raise StrategyError.of("in wrap(model)", error) from error
        self.journal.note("driver", driver.style)
        return driver(wrapped, self.model)

    def _step(self, step: int) -> None:
        self.observer.step = step
        try:
            self.driver.zero_grad(self.optimizer)
            loss = sum(self._micro_batch(step, micro) for micro in range(self.scenario.num_micro_batches))
            self.observer.phase = "before_step"
            self.driver.before_step()
            self._record("gradient", step)
            self.observer.phase = "step"
            self.driver.step(self.optimizer)
        except BaseException as error:
            raise StrategyError.of(f"in step {step} ({self.observer.phase})", error) from error
        self._record("weight", step)
        self.journal.write("loss", step=step, value=float(loss))

    def _micro_batch(self, step: int, micro: int) -> float:
        """One forward and backward; returns this micro-batch's share of the rank's loss."""
        *inputs, target = self.workload.micro_batch(step, micro, self.rank)
        last = micro == self.scenario.num_micro_batches - 1
        with nullcontext() if last else self.driver.no_sync():
            self.observer.phase = "forward"
            output = self.driver.forward(*inputs)
            if step == 0 and micro == 0:
                self._record("weight", -1)  # what the first forward used: the latest moment to be equal
            loss = self.workload.loss(output, target) / self.scenario.num_micro_batches
            self.observer.phase = "backward"
            self.driver.backward(loss)
        return float(loss.detach())

    def _record(self, what: str, step: int) -> None:
        keep = step < self.scenario.keep_steps
        for name, parameter in self.parameters:
            tensor = parameter.grad if what == "gradient" else parameter
            if tensor is not None:
                self.journal.tensor(what, step, name, tensor, keep=keep)


def run_reference(scenario: Scenario, folder: Path) -> None:
    """The single process: plain torch on the large batch, no strategy, no process group.

    Also writes each rank's own gradient of the first step, which is what a wrong gradient is explained with.
    """
    journal = Journal(folder)
    workload = workloads.load(scenario)
    torch.manual_seed(scenario.seed)
    model = workload.model(None)
    describe(journal, model, workload)
    tags = attach_tags(scenario, model, None) if scenario.tagged else None
    parameters = [(n, p) for n, p in model.named_parameters() if p.requires_grad]
    cls, options = workload.optimizer()
    optimizer = cls([p for _, p in parameters], **options)
    for step in range(min(scenario.num_steps, max(scenario.keep_steps, 1))):
        if step == 0:
            _local_gradients(scenario, workload, model, tags, journal)
        optimizer.zero_grad(set_to_none=True)
        *inputs, target = workload.large_batch(step)
        loss = workload.loss(model(*inputs), target)
        loss.backward()
        for name, parameter in parameters:
            if parameter.grad is not None:
                journal.tensor("gradient", step, name, parameter.grad, keep=True)
        optimizer.step()
        journal.write("loss", step=step, value=float(loss.detach()))
    journal.outcome("completed")


def _local_gradients(
    scenario: Scenario, workload: Workload, model: nn.Module, tags: Tags | None, journal: Journal
) -> None:
    for rank in range(scenario.world_size):
        model.zero_grad(set_to_none=True)
        for micro in range(scenario.num_micro_batches):
            if tags is not None:
                tags.rank = rank
            *inputs, target = workload.micro_batch(0, micro, rank)
            (workload.loss(model(*inputs), target) / scenario.num_micro_batches).backward()
        for name, parameter in model.named_parameters():
            if parameter.grad is not None:
                journal.tensor(f"local_gradient_{rank}", 0, name, parameter.grad, keep=True)
    if tags is not None:
        tags.rank = None


class Tags:
    """Replaces every gradient by its tag, before any wrapper's hook sees it. ``rank`` None: the mean over ranks."""

    def __init__(self, book: TagBook, rank: int | None) -> None:
        self.book, self.rank, self.num_fired = book, rank, 0

    def attach(self, name: str, parameter: nn.Parameter) -> None:
        def replace(gradient: torch.Tensor) -> torch.Tensor:
            self.num_fired += 1
            flat = self.book.mean(name) if self.rank is None else self.book.gradient(name, self.rank)
            return torch.from_numpy(flat).to(gradient).view(parameter.shape)

        parameter.register_hook(replace)


def attach_tags(scenario: Scenario, model: nn.Module, rank: int | None) -> Tags:
    named = [(n, p) for n, p in model.named_parameters() if p.requires_grad]
    tags = Tags(TagBook([(n, p.numel()) for n, p in named], scenario.world_size), rank)
    for name, parameter in named:
        tags.attach(name, parameter)
    return tags


def describe(journal: Journal, model: nn.Module, workload: Workload) -> None:
    """Note what the judge needs to know of the model."""
    entries = [
        {"name": n, "shape": list(p.shape), "numel": p.numel(), "dtype": str(p.dtype).removeprefix("torch.")}
        for n, p in model.named_parameters()
        if p.requires_grad
    ]
    journal.note("parameters", entries)
    exact = workload.exact or workload.scenario.tagged
    journal.note("arithmetic", "exact" if exact else entries[0]["dtype"])
    journal.note("started", time.monotonic())
