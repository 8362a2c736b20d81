"""What runs on one rank: build, wrap, train, write everything down.

Special here: this file judges nothing and compares nothing. It follows the scenario, drives the strategy through its
``Driver``, and leaves a journal, or half of one if the rank dies half-way. The single process is in ``reference``.
"""

from __future__ import annotations

import time
from contextlib import nullcontext
from functools import partial
from pathlib import Path
from typing import Any

import torch

from ddp_core.driver import Driver
from verifier import noise
from verifier import workload as workloads
from verifier.journal import Journal
from verifier.lines import MAKING_OPTIMIZER, STOPPED_AFTER
from verifier.observe.observer import Observer
from verifier.run import clipping, grouping, update_rule
from verifier.run.amid import amid
from verifier.run.batches import asking_for_gradients, micro_batch
from verifier.run.beside import beside_another
from verifier.run.changing import change, trained
from verifier.run.dropping import try_in_vain
from verifier.run.entrance import entering
from verifier.run.evaluating import evaluate, evaluate_before_all, put_in_mode, stay_in_evaluation_mode
from verifier.run.late_weights import LateWeights
from verifier.run.limits import why_not
from verifier.run.loading import LoadedStrategy, StrategyError, load_strategy, small_bucket_cap_mb
from verifier.run.loss_scale import LossScale
from verifier.run.names import Names
from verifier.run.nudging import nudge
from verifier.run.overflow import finite_everywhere, overflow
from verifier.run.reference import attach_tags, casting, describe
from verifier.run.rescheduling import reschedule_alike
from verifier.run.resuming import resume
from verifier.run.saving import save_and_go_on
from verifier.run.second_look import looking_again
from verifier.run.streams import seed_streams, seed_torch, states
from verifier.run.wrapping import wrapped_by
from verifier.scenario import Scenario
from verifier.scheduling import reschedule
from verifier.spikes import added_to_loss

NONE: frozenset[int] = frozenset()


class Subject:
    """One rank's replica under the strategy."""

    optimizer: torch.optim.Optimizer
    names: Names  # of the model as it was before it was wrapped
    store: Any  # a dist.Store of this scenario alone: ranks leave messages for one another in it

    def __init__(self, scenario: Scenario, rank: int, folder: Path, journal: Journal, observer: Observer) -> None:
        self.folder, self.scenario, self.rank = folder, scenario, rank
        self.journal, self.observer = journal, observer
        self.workload = workloads.load(scenario)
        noise.begin()
        seed_torch(scenario.seed if scenario.same_start else scenario.seed + 1 + rank)
        self.model = self.workload.placed(rank)
        self.loss_scale = LossScale(journal, scenario.world_size, self._loss_scaled)
        self.tags = attach_tags(scenario, self.model, rank) if scenario.tagged else None
        self.arrived = overflow(scenario, rank, self.model, at=lambda: (observer.step, observer.micro))
        nudge(self.model, scenario.nudge)
        self.frozen_names = describe(journal, self.model, self.workload)
        self.workload.begin(self.model)
        if not scenario.same_start:
            for name, parameter in self.model.named_parameters():
                journal.tensor("built", -1, name, parameter, keep=True)

    def run(self) -> None:
        scenario = self.scenario
        self.bucket_cap_mb = cap = small_bucket_cap_mb(self.model) if scenario.small_buckets else None
        strategy = load_strategy(scenario.strategy, self.folder, bucket_cap_mb=cap, style=scenario.driver)
        strategy.have_small_buckets(cap if scenario.small_caps else None)
        if not self._claimed(strategy):
            return
        seed_streams(scenario, self.rank)
        put_in_mode(self.model, scenario)
        with beside_another(self, strategy) as self.other:
            self.take_over(wrapped_by(self, strategy, self.model))
        stay_in_evaluation_mode(self.driver.callee, self.model, scenario)
        if not self._claimed(strategy.driven_by(self.driver)):
            return
        if reason := why_not(self):
            self.journal.note("not_claimed", reason)
            return
        if not (self._train_unevenly() if scenario.uneven else self._train(strategy)):
            return
        self.journal.note("rng_end", states())
        self.journal.note("drawn", noise.told())
        if self.tags is not None:
            self.journal.note("tags_fired", sorted(self.tags.fired))
            self.journal.note("arrived", self.tags.arrived)
        if self.arrived is not None:
            self.journal.note("arrived", self.arrived)
        if scenario.evaluate:
            self.journal.note("evaluation", self.workload.evaluate(self.model))

    def _claimed(self, strategy: LoadedStrategy) -> bool:
        self.contract = strategy.contract
        self.journal.note("contract", strategy.contract_dict())
        if (reason := strategy.not_claimed(self.scenario)) is not None:
            self.journal.note("not_claimed", reason)
        return reason is None

    def _train(self, strategy: LoadedStrategy) -> bool:
        """Run all steps of the scenario. False: the strategy turned out not to claim what the scenario asks."""
        evaluate_before_all(self)
        if not resume(self, strategy, -1):
            return False
        for step in range(self.scenario.num_steps):
            if not try_in_vain(self, step):
                return False
            self.other.step(step)
            self._step(step)
            if step == 0 and clipping.was_too_early(self):
                self.journal.note("not_claimed", clipping.TOO_EARLY)
                return False
            if self.scenario.overflow and not finite_everywhere(self, step):
                self.journal.note(STOPPED_AFTER, step)
                break
            if not (save_and_go_on(self, step) and resume(self, strategy, step)):
                return False
            if reason := reschedule(self.optimizer, self.scenario, step):
                self.journal.note("not_claimed", reason)
                return False
            reschedule_alike(self, step)
            if step == self.scenario.change_after:
                change(self)
            if step in self.scenario.evaluate_after:
                evaluate(self, step)
        self.late.last(step)
        return True

    def _train_unevenly(self) -> bool:
        """Train inside ``join()``; odd ranks take one step more than even ones, or the other way round."""
        try:
            with self.driver.wrapped.join():
                for step in range(self.scenario.num_steps + self.scenario.has_one_more(self.rank)):
                    self._step(step)
        except StrategyError:
            raise
        except BaseException as error:
            raise StrategyError.of("in join()", error) from error
        for name, parameter in self.parameters:
            self.journal.tensor("final", self.scenario.num_steps, name, parameter, keep=True)
        return True

    def take_over(self, driver: Driver) -> None:
        """Train through ``driver`` from here on, with an optimizer of its own."""
        self.driver, scenario = driver, self.scenario
        named = self.names.told(driver, self.journal)
        self.parameters = trained(scenario, named, self.frozen_names)
        self.frozen = [(n, p) for n, p in named if n in self.frozen_names]
        given = named if scenario.frozen_too else self.parameters
        self.late = LateWeights(self)
        cls, options = self.workload.optimizer()
        self.brought = update_rule.Brought(driver)
        try:
            self.optimizer = grouping.optimizer_with_less(driver, scenario, given, cls, options, self.journal)
        except BaseException as error:
            raise StrategyError.of(MAKING_OPTIMIZER, error) from error
        asked = grouping.was_asked(self.optimizer, cls, given)
        own = self.brought.holds(self.optimizer) or (update_rule.makes_its_own(driver) and not asked)
        grouping.tell(self.journal, scenario, driver, self.optimizer, own=own)
        update_rule.tell_at_start(self, cls)

    def _step(self, step: int) -> None:
        self.observer.step = step
        scenario, driver = self.scenario, self.driver
        try:
            driver.start_step(self.optimizer)
            if scenario.zero_grad == "before_forward":
                driver.zero_grad(self.optimizer, set_to_none=scenario.set_to_none)
            if step == scenario.dropped_before:
                self.forward(step, 0)
            loss = self._forwards_first(step) if scenario.forwards_first else self._in_turn(step)
            self.phase("before_step")
            driver.before_step()
            if (max_norm := scenario.max_norm(step)) is not None:
                clipping.clip(self, step, max_norm)
            self.record("gradient", step)
            self.phase("step")
            self._optimize(step)
            driver.after_step()
        except StrategyError:
            raise
        except BaseException as error:
            raise StrategyError.of(f"in step {step} ({self.observer.phase})", error) from error
        self.record("weight", step)
        if step == 0:
            update_rule.tell_after_step(self, self.workload.optimizer()[0])
        self.late.end()
        rests = step == 0 and not self.journal.has_moved("weight", -1, 0) and not self.journal.holds("gradient", 0)
        if rests and not (scenario.overflow or scenario.infinite_loss):  # in those all ranks may agree to skip the step
            self.journal.note("untouched", True)
        if step == scenario.num_steps - 1:
            self._record_frozen(step)
            self._record_optimizer_state(step)
        self.journal.write("loss", step=step, value=loss, at=time.monotonic())

    def _in_turn(self, step: int) -> float:
        """Run forward and backward of one micro-batch after the other; return the rank's loss."""
        total = 0.0
        for micro in range(self._num_backwards(step)):
            last = micro == self._num_backwards(step) - 1
            quiet = self.scenario.use_no_sync and not last
            with self.driver.no_sync() if quiet else nullcontext():
                loss = self.forward(step, micro, quiet=quiet)
                if micro == 0 and self.scenario.zero_grad == "after_forward":
                    self.driver.zero_grad(self.optimizer, set_to_none=self.scenario.set_to_none)
                joint = self.other.with_its_own(loss, step)
                self.phase("backward", micro, quiet=quiet)
                self.driver.backward(joint)
            amid(self, step, micro, last=last)
            total += float(loss.detach())
        return total

    def _forwards_first(self, step: int) -> float:
        losses = [self.forward(step, micro) for micro in range(self.scenario.num_micro_batches)]
        if self.scenario.glance:
            with torch.no_grad():
                self.forward(step, 0)
        for micro, loss in enumerate([torch.stack(losses).sum()] if self.scenario.one_backward else losses):
            self.phase("backward", micro)
            self.driver.backward(loss)
        return sum(float(loss.detach()) for loss in losses)

    def _num_backwards(self, step: int) -> int:
        return 1 if step in self.scenario.whole_steps else self.scenario.num_micro_batches

    def forward(self, step: int, micro: int, *, quiet: bool = False) -> torch.Tensor:
        """Run the forward of one micro-batch; return its share of the rank's loss."""
        *inputs, target = micro_batch(self.workload, self.scenario, step, micro, self.rank)
        inputs = [*asking_for_gradients(self.scenario, inputs, self.journal)]
        self.phase("forward", micro, quiet=quiet)
        saw = partial(self._saw, step, micro)
        first = step == 0 and micro == 0
        begin = entering(self, inputs, self._forward_began) if first else nullcontext()
        left = partial(self._left, step)
        scaled = self.loss_scale.watching(type(self.model))
        with begin, self.workload.watching(saw, left), casting(self.scenario), scaled:
            output = self.workload.call(self.driver.forward, inputs)
        self.workload.require_alike(output)
        if first:
            self.record("weight", -1)  # what the first forward used: by then weights must be equal
            self._record_frozen(-1)
        self.late.forwarded(step, micro)
        scale = self.scenario.loss_times / self._num_backwards(step)
        more = added_to_loss(self.scenario, self.rank, step)

        def loss_of(output: Any) -> torch.Tensor:
            return self.workload.loss(output, target) * scale + more

        loss = loss_of(output)
        self.loss_scale.follow(loss, output, loss_of)
        return loss

    def _forward_began(self) -> None:
        self.journal.note("rng_forward", states())

    def _loss_scaled(self, factor: float) -> None:
        if self.tags is not None:
            self.tags.scale = factor

    def _left(self, step: int, name: str, buffer: torch.Tensor) -> None:
        self.journal.tensor("left_buffer", step, name, buffer, keep=True)

    def _saw(self, step: int, micro: int, name: str, buffer: torch.Tensor) -> None:
        if micro == 0:  # the first forward of a step follows a synchronisation; what later ones see depends on no_sync
            self.journal.tensor("buffer", step, name, buffer, keep=True)
            if step == 0:
                self._forward_began()  # again, inside the model: a hook of its own may have seeded meanwhile

    def _optimize(self, step: int) -> None:
        """Step, and look at the gradients again when an optimizer begins: some strategies synchronise in ``step()``."""
        look = partial(self.record, "gradient", step, only_if_changed=True)
        models = [parameter for _, parameter in self.parameters + self.frozen]
        with looking_again(self.optimizer, look, models, self.journal) as self.begun:
            self.driver.step(self.optimizer)

    def phase(self, phase: str, micro: int | None = None, *, quiet: bool = False) -> None:
        self.observer.phase, self.observer.micro, self.observer.in_no_sync = phase, micro, quiet

    def record(self, what: str, step: int, *, only_if_changed: bool = False, but_for: frozenset[int] = NONE) -> None:
        keep = step < self.scenario.keep_steps
        for name, parameter in self.parameters:
            if id(parameter) in but_for:
                continue
            tensor = self.driver.gradient(parameter) if what == "gradient" else self.observer.arrived(parameter)
            if tensor is not None:
                self.journal.tensor(what, step, name, tensor, keep=keep, only_if_changed=only_if_changed)

    def _record_frozen(self, step: int) -> None:
        for name, parameter in self.frozen:
            self.journal.tensor("frozen", step, name, self.observer.arrived(parameter), keep=True)

    def _record_optimizer_state(self, step: int) -> None:
        """Record digests of momentum and its like, if the optimizer is of torch's kind."""
        state = getattr(self.optimizer, "state", None)
        if not isinstance(state, dict):
            return
        for name, parameter in self.parameters:
            for key, value in sorted((state.get(parameter) or {}).items()):  # None where ZeRO-1 loaded another rank's
                if isinstance(value, torch.Tensor):
                    self.journal.tensor("optimizer_state", step, f"{name}/{key}", value, keep=False)


if __name__ == "__main__":  # torchrun ... -m verifier.worker --scenario FILE --out DIR
    import sys

    from verifier.cluster import main

    sys.exit(main())
