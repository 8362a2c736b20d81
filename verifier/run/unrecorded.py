"""A step that is not recorded or judged: it is there for what it leaves behind in a strategy."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from verifier.run.batches import micro_batch
from verifier.run.loading import StrategyError

if TYPE_CHECKING:
    from ddp_core.driver import Driver
    from verifier.worker import Subject

APART = 500  # its samples are those of steps that nobody else takes


def take_unrecorded_step(
    subject: Subject, driver: Driver, optimizer: torch.optim.Optimizer, step: int, *, whose: str
) -> None:
    """Take one forward, backward and step through ``driver``, amid ``step``. ``whose`` names it in error messages.

    Raises StrategyError where the strategy's code raises.
    """
    carried = subject.observer.num_carried
    loss = loss_of_unrecorded(subject, driver, optimizer, step, whose=whose)
    try:
        driver.backward(loss)
        driver.before_step()
        driver.step(optimizer)
        driver.after_step()
    except BaseException as error:
        raise StrategyError.of(f"in step {step} of {whose}", error) from error
    subject.observer.num_carried = carried  # what it sent must not count as late weights


def loss_of_unrecorded(
    subject: Subject, driver: Driver, optimizer: torch.optim.Optimizer, step: int, *, whose: str
) -> torch.Tensor:
    """Return the loss of such a step, whose backward is still to be run. Raises StrategyError as above."""
    *inputs, target = micro_batch(subject.workload, subject.scenario, step + APART, 0, subject.rank)
    subject.observer.step = step
    subject.phase("unrecorded")
    try:
        driver.start_step(optimizer)
        driver.zero_grad(optimizer)
        return subject.workload.loss(subject.workload.call(driver.forward, inputs), target)
    except BaseException as error:
        raise StrategyError.of(f"in step {step} of {whose}", error) from error
