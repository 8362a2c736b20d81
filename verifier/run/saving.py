"""A checkpoint between two steps, after which the same objects train on, as in most runs.

Special here: the checkpoint is not kept. What counts is what saving leaves behind in the wrapper and in the optimizer.
"""

from __future__ import annotations

from contextlib import nullcontext, suppress
from typing import TYPE_CHECKING, Any

from ddp_core.driver import Driver
from verifier.run.loading import StrategyError

if TYPE_CHECKING:
    from verifier.worker import Subject


def save_and_go_on(subject: Subject, step: int) -> bool:
    """Ask the strategy and its optimizer for their states, if that is to be after ``step``.

    Return False if there is none to ask for.
    """
    if step != subject.scenario.save_after:
        return True
    if not offers_state(subject):
        return False
    _save(subject, f"after step {step}")
    return True


def save_amid(subject: Subject, step: int) -> None:
    """Save between two micro-batches, unless the strategy disclaims or lacks a ``state_dict()``.

    A strategy that does not claim a state may refuse to give one at that moment, as torch's ZeroRedundancyOptimizer
    does. That is no answer to what this scenario asks, namely what becomes of gradients.
    """
    if "state_dict" in subject.contract.disclaims or _without_state(subject):
        return
    with nullcontext() if "state_dict" in subject.contract.supports else suppress(StrategyError):
        _save(subject, f"between two micro-batches of step {step}")


def _save(subject: Subject, when: str) -> None:
    try:
        subject.phase("saving")
        subject.driver.state_dict()
        subject.optimizer.state_dict()
        kept_beside(subject.driver)
    except BaseException as error:
        raise StrategyError.of(f"when its state was saved {when}", error) from error


def kept_beside(driver: Driver) -> Any:
    """Return the state of what stands beside the model. None: it keeps none, or does not offer it after all."""
    with suppress(NotImplementedError):
        return None if driver.state_keeper is None else driver.state_keeper.state_dict()
    return None


def offers_state(subject: Subject) -> bool:
    """Return whether the strategy and its optimizer have a ``state_dict()``; note "not claimed" where one does not."""
    if without := _without_state(subject):
        subject.journal.note("not_claimed", f"the {without} offers no state_dict()")
    return not without


def _without_state(subject: Subject) -> str:
    """Return which of the two has no ``state_dict()``; "" where both do."""
    for what, thing in (("strategy", subject.driver.callee), ("optimizer", subject.optimizer)):
        if not callable(getattr(thing, "state_dict", None)):
            return what
    return ""
