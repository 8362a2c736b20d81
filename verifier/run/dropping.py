"""A batch that comes to nothing: ``zero_grad()`` follows its backward in place of a step, or an exception its forward.

Special here: the single process does not take it, so whatever it leaves behind shows in what comes after.
"""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING

from verifier.journal import landed
from verifier.run.loading import StrategyError

if TYPE_CHECKING:
    from verifier.worker import Subject

MOVED = "weights move in the backward, so no batch can be dropped after it"


def drop_batch(subject: Subject, step: int) -> bool:
    """Take ``step``'s samples once, for nothing. False, and noted: weights have moved meanwhile."""
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
        if not all(kept.equal(now.detach()) for kept, (_, now) in zip(before, subject.parameters, strict=True)):
            subject.journal.note("not_claimed", MOVED)
            return False
        for _, parameter in subject.parameters:  # whoever throws a batch away has looked at its gradients
            if (gradient := driver.gradient(parameter)) is not None:
                landed(gradient)
        driver.zero_grad(subject.optimizer, set_to_none=scenario.set_to_none)
    except BaseException as error:
        raise StrategyError.of(f"when a batch was dropped before step {step}", error) from error
    return True


def leave_no_sync_by_an_exception(subject: Subject, step: int) -> bool:
    """As a batch that does not fit in memory does, in a loop that catches it and goes on. False: no context."""
    if not subject.driver.has_no_sync:
        subject.journal.note("not_claimed", "the strategy has no no_sync() to leave by an exception")
        return False
    *inputs, _ = subject.workload.micro_batch(step, 0, subject.rank)
    try:
        with suppress(DeliberateError), subject.driver.no_sync():
            subject.driver.forward(*inputs)
            raise DeliberateError
    except BaseException as error:
        raise StrategyError.of("when an exception left no_sync()", error) from error
    return True


class DeliberateError(Exception):
    """Raised by this file inside ``no_sync()``, to see what is left of it."""
