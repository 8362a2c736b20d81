"""A batch without a step: ``zero_grad()`` follows its backward, or its forward or ``no_sync()`` ends in an exception.

Special here: the single process does not take this batch, so whatever it leaves behind shows in the next steps.
"""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Any

from torch import nn
from torch.nn.modules.module import register_module_forward_hook

from verifier.journal import landed
from verifier.run.loading import StrategyError
from verifier.run.together import any_rank_says
from verifier.uncompiled import uncompiled

if TYPE_CHECKING:
    from verifier.worker import Subject

MOVED = "weights move in the backward, so no batch can be dropped after it"
NO_CONTEXT = "the strategy has no no_sync()"


def try_in_vain(subject: Subject, step: int) -> bool:
    """Run what the scenario drops before ``step``. Return False, and note why, if the strategy does not support it."""
    scenario = subject.scenario
    acts = (
        (scenario.raise_before, leave_no_sync_by_an_exception),
        (scenario.break_before, break_forward),
        (scenario.drop_before, drop_batch),
        (scenario.drop_quiet_before, drop_micro_batch),
    )
    return all(act(subject, step) for before, act in acts if before == step)


def drop_batch(subject: Subject, step: int) -> bool:
    """Take ``step``'s samples once and drop them. Return False, and note it, if weights moved on any rank."""
    driver, scenario = subject.driver, subject.scenario
    subject.observer.step = step
    try:
        driver.start_step(subject.optimizer)
        driver.zero_grad(subject.optimizer, set_to_none=scenario.set_to_none)
        loss = subject.forward(step, 0)
        before = [parameter.detach().clone() for _, parameter in subject.parameters]
        subject.phase("backward", 0)
        driver.backward(loss)
        subject.phase("before_step")
        driver.before_step()
        rested = all(kept.equal(now.detach()) for kept, (_, now) in zip(before, subject.parameters, strict=True))
        if any_rank_says(subject, f"moved/{step}", own=not rested):
            subject.journal.note("not_claimed", MOVED)
            return False
        for _, parameter in subject.parameters:  # a loop that drops a batch has looked at its gradients
            if (gradient := driver.gradient(parameter)) is not None:
                landed(gradient)
        driver.zero_grad(subject.optimizer, set_to_none=scenario.set_to_none)
    except BaseException as error:
        raise StrategyError.of(f"when a batch was dropped before step {step}", error) from error
    return True


def drop_micro_batch(subject: Subject, step: int) -> bool:
    """Drop a micro-batch under ``no_sync()``: what a wrapper keeps until it synchronises must go, too.

    Returns False, and notes it, if the strategy has no ``no_sync()``.
    """
    driver, scenario = subject.driver, subject.scenario
    if not driver.has_no_sync:
        subject.journal.note("not_claimed", NO_CONTEXT)
        return False
    subject.observer.step = step
    try:
        driver.start_step(subject.optimizer)
        driver.zero_grad(subject.optimizer, set_to_none=scenario.set_to_none)
        with driver.no_sync():
            loss = subject.forward(step, 0, quiet=True)
            subject.phase("backward", 0, quiet=True)
            driver.backward(loss)
        driver.zero_grad(subject.optimizer, set_to_none=scenario.set_to_none)
    except BaseException as error:
        raise StrategyError.of(f"when a micro-batch was dropped before step {step}", error) from error
    return True


def leave_no_sync_by_an_exception(subject: Subject, step: int) -> bool:
    """Leave ``no_sync()`` by an exception, as when a batch did not fit in memory. False: there is no ``no_sync()``."""
    if not subject.driver.has_no_sync:
        subject.journal.note("not_claimed", NO_CONTEXT)
        return False
    *inputs, _ = subject.workload.micro_batch(step, 0, subject.rank)
    try:
        with suppress(DeliberateError), subject.driver.no_sync():
            subject.driver.forward(*inputs)
            raise DeliberateError
    except BaseException as error:
        raise StrategyError.of("when an exception left no_sync()", error) from error
    return True


def break_forward(subject: Subject, step: int) -> bool:
    """Run a forward that raises half-way in the model, on every rank; the loop goes on afterwards."""
    *inputs, _ = subject.workload.micro_batch(step, 0, subject.rank)
    subject.observer.step = step
    subject.phase("forward", 0)
    handle = register_module_forward_hook(_stop)
    try:
        subject.driver.start_step(subject.optimizer)
        subject.driver.zero_grad(subject.optimizer, set_to_none=subject.scenario.set_to_none)
        subject.workload.call(subject.driver.forward, inputs)
    except BaseException as error:
        if not _came_of_it(error):
            raise StrategyError.of(f"in a forward before step {step} that was to end in an exception", error) from error
    finally:
        handle.remove()
    return True


@uncompiled
def _stop(module: nn.Module, inputs: Any, output: Any) -> None:
    if isinstance(module, nn.Linear):
        raise DeliberateError


def _came_of_it(error: BaseException | None) -> bool:
    """Return whether ``error`` is the one raised on purpose, or one that a strategy raised because of it."""
    while error is not None and not isinstance(error, DeliberateError):
        error = error.__cause__ or error.__context__
    return error is not None


class DeliberateError(Exception):
    """Raised by this file, inside ``no_sync()`` or in a forward, to see what such an exception leaves behind."""
