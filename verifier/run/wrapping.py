"""Calls the strategy's ``wrap`` on a model, and gives the result to the driver that fits.

Special here: a strategy that asks for the loop's optimizer beside the model is given one, made as the scenario says.
The loop then steps the optimizer that the strategy returns.
"""

from __future__ import annotations

import traceback
from typing import TYPE_CHECKING, Any

import torch
import torch.distributed as dist
from torch import nn

from ddp_core.arguments import filled, model_by_name
from ddp_core.driver import Driver
from ddp_core.drivers.finish import FinishDriver
from ddp_core.methods import NotDrivable, that_a_loop_may_call, that_make_equal
from ddp_core.recognition import drive, marks
from verifier import fault as faults
from verifier.lines import WRAPPING
from verifier.run import grouping
from verifier.run.changing import trained
from verifier.run.loading import LoadedStrategy, StrategyError
from verifier.run.names import Names
from verifier.run.slow_backward import slow_down
from verifier.scenario import Scenario
from verifier.subgroups import groups, members

if TYPE_CHECKING:
    from verifier.worker import Subject

TOO_EARLY = "no parameter has a gradient yet. A function that is to be called before each step: --driver function"


def wrapped_by(subject: Subject, strategy: LoadedStrategy, model: nn.Module) -> Driver:
    """Return the driver of ``model`` under the strategy, with the scenario's fault planted in it if there is one.

    Raises StrategyError if the strategy's code raises, or no driver fits what it returned.
    """
    scenario = subject.scenario
    handed: list[torch.optim.Optimizer] = []

    def hand_over() -> torch.optim.Optimizer:
        cls, options = subject.workload.optimizer()
        named = list(model.named_parameters())
        given = named if scenario.frozen_too else trained(scenario, named, subject.frozen_names)
        first, _ = grouping.apart(scenario, given)
        handed.append(cls(grouping.grouped(scenario, first), **options))
        return handed[0]

    def wrap(model: nn.Module) -> Any:
        by_name = model_by_name(strategy.wrap)
        options = filled(
            strategy.wrap,
            {**strategy.options, **_group_of_its_own(strategy, scenario, subject.rank)},
            model,
            subject.bucket_cap_mb,
            num_given=by_name is None,
            make_optimizer=hand_over,
        )
        return strategy.wrap(model, **options) if by_name is None else strategy.wrap(**{by_name: model, **options})

    if "branch_order" in strategy.contract.disclaims:
        subject.workload.in_one_order(model)
    before = marks(model)
    subject.names = Names(model)
    try:
        wrapped = wrap(model) if scenario.fault is None else faults.load(scenario.fault).plant(model, wrap)
        changed = marks(model) != before
        driver = drive(wrapped, model, style=scenario.driver, companions=strategy.companions, left_marks=changed)
    except BaseException as error:
        raise StrategyError.of(WRAPPING, _told_when_to_call(error)) from error
    if scenario.slow_backward:
        slow_down(model, scenario.delay_ms)
    if handed:
        driver.optimizer_went_in = True
        driver.optimizer_of_wrap = handed[0] if driver.optimizer_of_wrap is None else driver.optimizer_of_wrap
    _note(subject, driver)
    return driver


def _note(subject: Subject, driver: Driver) -> None:
    """Write down how the strategy is driven, and which of its methods a loop might have called."""
    subject.journal.note("driver", driver.style)
    subject.journal.note("has_no_sync", driver.has_no_sync)
    if type(driver) in (Driver, FinishDriver) and driver.wrapped is not subject.model:
        called = [call.name for call in driver.calls] if isinstance(driver, FinishDriver) else []
        subject.journal.note("uncalled", [n for n in that_a_loop_may_call(driver.wrapped) if n not in called])
    if not subject.scenario.same_start:
        subject.journal.note("make_equal", that_make_equal(driver.wrapped))


def _told_when_to_call(error: BaseException) -> BaseException:
    """Return ``error``, with advice in front if code that was called before any backward wants a gradient."""
    frames = (frame for frame, _ in traceback.walk_tb(error.__traceback__))
    named = any("grad" in frame.f_code.co_names for frame in frames)
    if not (isinstance(error, AttributeError | TypeError) and "NoneType" in str(error) and named):
        return error
    advice = NotDrivable(f"{error}: {TOO_EARLY}")
    advice.__cause__ = error  # its traceback is theirs to read
    return advice


def _group_of_its_own(strategy: LoadedStrategy, scenario: Scenario, rank: int) -> dict[str, Any]:
    """Return the argument that gives ``strategy`` a group smaller than the job, where the scenario has one. All ranks
    make all groups, in the same order, as torch requires.
    """
    name = strategy.group_argument if scenario.subgroups else None
    if name is None:
        return {}
    made = {ranks: dist.new_group(list(ranks)) for ranks in groups(scenario.world_size)}
    return {name: made[members(scenario.world_size, rank)]}
