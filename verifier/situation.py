"""Situations: the conditions under which every strategy is tried, and which of them a profile includes.

Special here: planning is pure and torch-free. Everything that cannot work (an unknown name, a batch that the ranks
cannot share) is refused in ``plan`` before any process exists.
"""

from __future__ import annotations

import importlib.util
import zlib
from dataclasses import dataclass, field
from typing import Any

from verifier import catalogue, devices
from verifier.errors import UnknownName, UsageError
from verifier.orders import may_be_drawn
from verifier.request import MAX_WORLD_SIZE, Builtin, Request, StrategyRef
from verifier.scenario import Scenario
from verifier.texts import (
    accumulates,
    asks_on_import,
    defines_add_param_group,
    defines_clip,
    drops_micro_batches,
    every_few_steps,
    has_an_optimizer,
    has_to_do_with_optimizers,
    keeps_for_all,
    loads_by_itself,
    looks_for_outliers,
    says_cap,
    says_complex,
    says_float16,
    says_group,
    says_norm_type,
    says_precision,
    says_sizes,
    says_sparse,
    speaks_of_losses,
    speaks_of_nodes,
)

PROFILES = ("quick", "standard", "thorough")
SEEDS_PER_SITUATION = {"quick": 1, "standard": 1, "thorough": 3}
CONCERNS = {  # what the text of a strategy may show
    "a set, a hash or an order by address": may_be_drawn,
    "float16": says_float16,
    "a process group": says_group,
    "a norm_type": says_norm_type,
    "a clip_grad_norm_() of its own": defines_clip,
    "what it accumulates, or a backward() of its own": accumulates,
    "a loss, or numbers that are none": speaks_of_losses,
    "no_sync(), or what it accumulates": drops_micro_batches,
    "something every few steps": every_few_steps,
    "the sizes of tensors": says_sizes,
    "an add_param_group()": defines_add_param_group,
    "local ranks, or groups that it makes": speaks_of_nodes,
    "complex numbers": says_complex,
    "sparse gradients": says_sparse,
    "the end of a backward, or what all instances of a class share": keeps_for_all,
    "a cap of its buckets": says_cap,
    "half precision": says_precision,
    "outliers, or steps that it skips": looks_for_outliers,
    "a state_dict() of its own": loads_by_itself,
    "an optimizer of its own": has_an_optimizer,
    "anything of an optimizer, or no text to read": has_to_do_with_optimizers,
    "the process group, asked about on import": asks_on_import,
}
THOROUGH_DELAY_MS = 2.0  # of its second and third seed: the network is late, and collectives overtake one another


@dataclass(frozen=True)
class Situation:
    """Conditions for one scenario. ``since`` is the smallest profile that includes it; None: only by workload name.

    The batch is given per rank and micro-batch, or, where the learning task fixes it, for all ranks together.
    """

    since: str | None
    workload: str
    samples_per_micro_batch: int = 4
    samples_per_step: int | None = None
    repeat: bool = True  # thorough runs it with several seeds
    most_ranks: int | None = None  # with more it is left out: its cost grows with ranks, what it finds does not
    standard_where: str | None = None  # a key of CONCERNS: if the strategy's text shows it, ``standard`` includes this
    order: int = 50  # reports show lower ones first: simple ones before those that build on them
    fields: dict[str, Any] = field(default_factory=dict)

    def begins(self, ref: StrategyRef) -> str | None:
        """Return the smallest profile that includes it for the strategy ``ref``."""
        concerned = self.standard_where is not None and CONCERNS[self.standard_where](ref)
        return "standard" if concerned else self.since

    def scenario(self, name: str, situation: str, request: Request, seed: int, *, delay_ms: float = 0.0) -> Scenario:
        num_micro_batches = self.fields.get("num_micro_batches", 1)
        size = self.samples_per_micro_batch
        if self.samples_per_step is not None:
            size = share(self.workload, self.samples_per_step, request.world_size, num_micro_batches)
        device, backend = devices.chosen(request)
        return Scenario(
            name=name,
            situation=situation,
            workload=self.workload,
            strategy=request.strategy,
            world_size=request.world_size,
            samples_per_micro_batch=size,
            seed=(seed ^ zlib.crc32(situation.encode())) % 2**31,
            device=device,
            backend=backend,
            driver=request.driver,
            fault=request.fault,
            timeout_s=request.timeout_s,
            **{**self.fields, "delay_ms": max(self.fields.get("delay_ms", 0.0), delay_ms)},
        )


def share(workload: str, samples: int, world_size: int, num_micro_batches: int) -> int:
    """Return the samples per micro-batch when ``samples`` are shared out equally.

    Raises UsageError if they cannot be.
    """
    parts = world_size * num_micro_batches
    if samples % parts:
        good = [str(n) for n in range(1, MAX_WORLD_SIZE + 1) if samples % (n * num_micro_batches) == 0]
        raise UsageError(
            f"workload '{workload}' cannot be split over a world size of {world_size}: its {samples} samples a step "
            f"do not divide by {parts}. Choose a world size of {', '.join(good)}."
        )
    return samples // parts


def plan(request: Request) -> list[Scenario]:
    """Return the scenarios that answer ``request``, in the order in which they are run.

    Raises:
        UsageError: the request cannot be carried out; the message names the value, the rule and the remedy.
    """
    _require_valid(request)
    chosen: dict[str, Situation] = {}
    for name in catalogue.SITUATIONS.names():
        situation: Situation = catalogue.SITUATIONS.load(name).SITUATION
        if request.workloads is not None:
            if situation.workload in request.workloads:
                chosen[name] = situation
        elif (since := situation.begins(request.strategy)) and PROFILES.index(since) <= PROFILES.index(request.profile):
            chosen[name] = situation
    scenarios = []
    for name, situation in sorted(chosen.items(), key=lambda item: (item[1].order, item[0])):
        if situation.most_ranks is not None and request.world_size > situation.most_ranks:
            continue
        for repeat in range(SEEDS_PER_SITUATION[request.profile] if situation.since and situation.repeat else 1):
            label = name if repeat == 0 else f"{name}-{repeat + 1}"
            delay_ms = request.delay_ms or (THOROUGH_DELAY_MS if repeat else 0.0)
            seed = request.seed + 7919 * repeat
            scenarios.append(situation.scenario(label, name, request, seed, delay_ms=delay_ms))
    return scenarios


def _require_valid(request: Request) -> None:
    if not 1 <= request.world_size <= MAX_WORLD_SIZE:
        raise UsageError(
            f"a world size of {request.world_size} is not possible: it is the number of ranks, "
            f"from 1 to {MAX_WORLD_SIZE}. Try --world-size 2."
        )
    if isinstance(request.strategy, Builtin):
        catalogue.STRATEGIES.require(request.strategy.name)
    if request.fault is not None:
        catalogue.FAULTS.require(request.fault)
        _require_fault_applies(request)
    if request.driver is not None:
        catalogue.DRIVERS.require(request.driver)
    if request.launcher != "auto":
        catalogue.LAUNCHERS.require(request.launcher)
    for code in request.checks or ():
        if code not in catalogue.check_names():
            raise UnknownName("check", code, catalogue.check_names())
    for workload in request.workloads or ():
        catalogue.WORKLOADS.require(workload)
        if workload == "digits" and importlib.util.find_spec("sklearn") is None:
            raise UsageError(
                "workload 'digits' reads the scans that scikit-learn carries, and scikit-learn is not installed. "
                "Install it with: pip install 'lockstep-ddp[frameworks]'"
            )
    devices.chosen(request)


def _require_fault_applies(request: Request) -> None:
    from verifier.fault import applies_to

    assert request.fault is not None
    valid = applies_to(request.fault)
    name = request.strategy.name if isinstance(request.strategy, Builtin) else "a strategy of your own"
    if name not in valid:
        raise UsageError(
            f"fault '{request.fault}' cannot be planted in {name}: it changes the code of {', '.join(valid)}. "
            f"Try: lockstep verify {valid[0]} --fault {request.fault}"
        )
