"""The single process beside the ranks: plain torch on the large batch, no strategy, no process group.

Special here: it also writes down each rank's own gradient of the first step, computed on that rank's micro-batches, and
what that rank's forward leaves in buffers. They explain a wrong gradient. In narrow dtypes, gradients are compared with
the mean of these.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import nn

from verifier import workload as workloads
from verifier.journal import Journal, digest
from verifier.lines import NORM, TURNED
from verifier.run.evaluating import BEFORE_ALL, evaluate_alone, put_in_mode
from verifier.run.grouping import apart, grouped
from verifier.run.streams import seed_streams, seed_torch
from verifier.scenario import Scenario
from verifier.scheduling import reschedule, reschedule_others
from verifier.tags import TagBook
from verifier.uncompiled import uncompiled
from verifier.workload import Workload


def run_reference(scenario: Scenario, folder: Path) -> dict[str, Any]:
    """Train alone and write ``folder``; return the seals of what was written (``Journal.outcome``)."""
    journal = Journal(folder)
    workload = workloads.load(scenario)
    seed_torch(scenario.seed)
    model = workload.placed(None)
    describe(journal, model, workload)
    tags = attach_tags(scenario, model, None) if scenario.tagged else None
    parameters, optimizer = _optimized(scenario, workload, model)
    workload.begin(model)
    put_in_mode(model, scenario)
    if BEFORE_ALL in scenario.evaluate_after:
        evaluate_alone(scenario, workload, model, journal, BEFORE_ALL)
    for step in range(min(scenario.num_steps, max(scenario.keep_steps, 1))):
        if step == 0:
            _local_gradients(scenario, workload, model, tags, journal)
        optimizer.zero_grad(set_to_none=scenario.set_to_none or step == 0)
        *inputs, target = workload.large_batch(step)
        leaving = partial(_tell, journal, "left_buffer", step) if step == 0 else None
        with workload.watching(partial(_tell, journal, "buffer", step), leaving), casting(scenario):
            output = workload.call(model, inputs)
        loss = workload.loss(output, target) * scenario.loss_times
        loss.backward()
        if (max_norm := scenario.max_norm(step)) is not None:
            norm = torch.nn.utils.clip_grad_norm_([p for _, p in parameters], max_norm, scenario.norm_type)
            journal.tensor("norm", step, NORM, norm.double(), keep=True)
        _record(journal, "gradient", step, [(n, p.grad) for n, p in parameters])
        optimizer.step()
        _record(journal, "weight", step, parameters)
        journal.write("loss", step=step, value=float(loss.detach()))
        reschedule(optimizer, scenario, step)
        if step == scenario.new_options_after:
            reschedule_others(optimizer)
        if step == scenario.change_after:
            workload.change(model)
            if scenario.change == "replace":
                parameters, optimizer = _optimized(scenario, workload, model)
        if step in scenario.evaluate_after:
            evaluate_alone(scenario, workload, model, journal, step)
    if scenario.uneven:
        _last_uneven_step(scenario, workload, model, optimizer)
        _record(journal, "final", scenario.num_steps, parameters)
    return journal.outcome("completed")


def _optimized(
    scenario: Scenario, workload: Workload, model: nn.Module
) -> tuple[list[tuple[str, nn.Parameter]], torch.optim.Optimizer]:
    """Return what is trained, and a new optimizer that has it."""
    parameters = [(name, parameter) for name, parameter in model.named_parameters() if parameter.requires_grad]
    cls, options = workload.optimizer()
    given = list(model.named_parameters()) if scenario.frozen_too else parameters
    first, joining = apart(scenario, given)
    optimizer = cls(grouped(scenario, first), **options)
    if joining:
        optimizer.add_param_group({"params": [parameter for _, parameter in joining]})
    return parameters, optimizer


def _last_uneven_step(
    scenario: Scenario, workload: Workload, model: nn.Module, optimizer: torch.optim.Optimizer
) -> None:
    """Take the step that only some ranks have data for. The others count as zero: the mean is over all ranks."""
    optimizer.zero_grad()
    for rank in filter(scenario.has_one_more, range(scenario.world_size)):
        *inputs, target = workload.micro_batch(scenario.num_steps, 0, rank)
        (workload.loss(model(*inputs), target) / scenario.world_size).backward()
    if any(map(scenario.has_one_more, range(scenario.world_size))):
        optimizer.step()


def _record(journal: Journal, what: str, step: int, tensors: Sequence[tuple[str, torch.Tensor | None]]) -> None:
    for name, tensor in tensors:
        if tensor is not None:
            journal.tensor(what, step, name, tensor, keep=True)


def _tell(journal: Journal, what: str, step: int, name: str, buffer: torch.Tensor) -> None:
    journal.tensor(what, step, name, buffer, keep=True)


def _hear(name: str, buffer: torch.Tensor) -> None:
    pass


def _local_gradients(
    scenario: Scenario, workload: Workload, model: nn.Module, tags: Tags | None, journal: Journal
) -> None:
    buffers = {name: buffer.clone() for name, buffer in model.named_buffers()}
    for rank in range(scenario.world_size):
        model.zero_grad(set_to_none=True)
        _put_back(model, buffers)
        seed_streams(scenario, rank)
        before: dict[str, torch.Tensor] = {}
        for micro in range(scenario.num_micro_batches):
            if tags is not None:
                tags.rank = rank
            before = {n: p.grad.clone() for n, p in model.named_parameters() if p.grad is not None}
            *inputs, target = workload.micro_batch(0, micro, rank)
            leaving = partial(_tell, journal, f"left_buffer_{rank}", 0)
            with workload.watching(_hear, leaving), casting(scenario):
                output = workload.call(model, inputs)
            (workload.loss(output, target) / scenario.num_micro_batches).backward()
            if micro == 0 and scenario.num_micro_batches > 1:
                _record(journal, f"first_gradient_{rank}", 0, [(n, p.grad) for n, p in model.named_parameters()])
        if before and scenario.num_micro_batches > 1:
            last = [(n, p.grad - before[n]) for n, p in model.named_parameters() if p.grad is not None and n in before]
            _record(journal, f"last_gradient_{rank}", 0, last)
        own = [(n, p.grad) for n, p in model.named_parameters()]
        _record(journal, f"local_gradient_{rank}", 0, own)
        if workload.rows_may_turn:
            _record(journal, f"{TURNED}_{rank}", 0, _turned(scenario, workload, model, own, rank))
    model.zero_grad(set_to_none=True)
    _put_back(model, buffers)
    if tags is not None:
        tags.rank = None


def _turned(
    scenario: Scenario, workload: Workload, model: nn.Module, own: list[tuple[str, Any]], rank: int
) -> list[tuple[str, torch.Tensor]]:
    """Return how far a rank's gradients are from its ``own`` if the rows of its micro-batches come in opposite order,
    or in two parts with a forward each: the largest rounding error of each tensor. Correct strategies may have it, too.
    """
    gradients = {name: gradient.clone() for name, gradient in own if gradient is not None}
    off: dict[str, torch.Tensor] = {}
    for in_parts in (False, True):
        model.zero_grad(set_to_none=True)
        for micro in range(scenario.num_micro_batches):
            _other_order(scenario, workload, model, workload.micro_batch(0, micro, rank), in_parts).backward()
        for name, parameter in model.named_parameters():
            if parameter.grad is not None and name in gradients:
                error = (parameter.grad - gradients[name]).abs().max().double()
                off[name] = torch.maximum(error, off.get(name, error))
    return list(off.items())


def _other_order(
    scenario: Scenario, workload: Workload, model: nn.Module, batch: Sequence[torch.Tensor], in_parts: bool
) -> torch.Tensor:
    """Return the loss of a micro-batch in two parts, or in one part with its rows reversed."""
    *inputs, target = batch if in_parts else [rows.flip(0) for rows in batch]
    middle = -(-len(target) // 2) if in_parts else len(target)
    parts = [part for part in (slice(middle), slice(middle, None)) if len(target[part])]
    with casting(scenario):
        output = torch.cat([workload.call(model, [rows[part] for rows in inputs]) for part in parts])
    return workload.loss(output, target) / scenario.num_micro_batches


@torch.no_grad()
def _put_back(model: nn.Module, buffers: dict[str, torch.Tensor]) -> None:
    for name, buffer in model.named_buffers():
        buffer.copy_(buffers[name])


class Tags:
    """Replaces every gradient by its tag, before any wrapper's hook sees it. ``rank`` None: the mean over ranks.

    A strategy may rightly multiply the loss by a ``scale`` (by 1/W, and sum then; or against underflow). Its tags are
    multiplied as its gradients would have been.
    """

    def __init__(self, book: TagBook, rank: int | None) -> None:
        self.book, self.rank, self.scale = book, rank, 1.0
        self.fired = set[str]()  # names
        self.arrived: dict[str, str] = {}  # digests of the last nonzero gradients that were replaced

    def attach(self, name: str, parameter: nn.Parameter) -> None:
        @uncompiled
        def replace(gradient: torch.Tensor) -> torch.Tensor | None:
            flat = self.book.mean(name) if self.rank is None else self.book.gradient(name, self.rank)
            if gradient.numel() != flat.size:  # the strategy has reduced it before, and this is its shard
                return None
            self.fired.add(name)
            if self.rank is not None and type(gradient) is torch.Tensor and gradient.any():
                self.arrived[name] = digest(gradient)
            flat = flat if self.scale == 1.0 else flat * self.scale
            return torch.from_numpy(flat).to(gradient).view(parameter.shape)

        parameter.register_hook(replace)


def attach_tags(scenario: Scenario, model: nn.Module, rank: int | None) -> Tags:
    named = [(n, p) for n, p in model.named_parameters() if p.requires_grad]
    tags = Tags(TagBook([(n, p.numel()) for n, p in named], scenario.world_size), rank)
    for name, parameter in named:
        tags.attach(name, parameter)
    return tags


def casting(scenario: Scenario) -> AbstractContextManager[None]:
    """Return what a loop puts around a forward: autocast, if the scenario asks for it. Backward runs outside of it."""
    return torch.autocast(scenario.device, torch.bfloat16) if scenario.autocast else nullcontext()


def describe(journal: Journal, model: nn.Module, workload: Workload) -> list[str]:
    """Note what the judge needs to know of the model; returns the names of its frozen parameters."""
    entries = [
        {
            "name": n,
            "shape": list(p.shape),
            "stride": list(p.stride()),
            "numel": p.numel(),
            "dtype": str(p.dtype).removeprefix("torch."),
        }
        for n, p in model.named_parameters()
        if p.requires_grad
    ]
    journal.note("parameters", entries)
    frozen = [n for n, p in model.named_parameters() if not p.requires_grad]
    journal.note("frozen", frozen)
    exact = (workload.exact and workload.scenario.optimizer == "sgd") or workload.scenario.tagged
    journal.note("arithmetic", "exact" if exact else "rounded")
    journal.note("started", time.monotonic())
    return frozen
