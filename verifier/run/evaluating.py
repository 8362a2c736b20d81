"""An evaluation between two steps, as a validating loop has it: on a rank, and in the single process.

Special here: the outputs are written down. A rank evaluates its own rows, so the single process evaluates the rows of
every rank, one after the other, with the weights that it has at that moment.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import torch
from torch import nn
from torch.nn.modules.module import register_module_forward_pre_hook

from verifier.journal import Journal
from verifier.run.loading import StrategyError
from verifier.scenario import Scenario
from verifier.uncompiled import uncompiled
from verifier.workload import Workload

if TYPE_CHECKING:
    from verifier.worker import Subject


BEFORE_ALL = -1  # the number of the evaluation before the first step


def evaluate(subject: Subject, step: int) -> Any:
    """Run a forward of the wrapped model in evaluation mode, without gradients; return its output. A strategy that
    disclaims evaluations is not asked for any.
    """
    if "evaluation" in subject.contract.disclaims:
        return None
    *inputs, _ = subject.workload.micro_batch(step, 0, subject.rank)
    try:
        subject.phase("evaluation")
        with _evaluation_mode(subject.driver.callee), torch.no_grad():
            output = subject.workload.call(subject.driver.forward, inputs)
    except BaseException as error:
        when = "before the first step" if step == BEFORE_ALL else f"in step {step} or after it"
        raise StrategyError.of(f"in an evaluation {when}", error) from error
    if isinstance(output, torch.Tensor):
        subject.journal.tensor("evaluation", step, "output", output, keep=True)
    return output


def evaluate_before_all(subject: Subject) -> None:
    """Run the evaluation before the first step, where the scenario has one."""
    if BEFORE_ALL in subject.scenario.evaluate_after:
        evaluate(subject, BEFORE_ALL)


def put_in_mode(model: nn.Module, scenario: Scenario) -> None:
    """Put the model in training mode or in evaluation mode, or only its norms in the latter, as a script does."""
    model.train(not scenario.eval_mode)
    if scenario.norms_at_rest:
        _put_norms_to_rest(model)


def _put_norms_to_rest(model: nn.Module) -> None:
    for module in model.modules():
        if isinstance(getattr(module, "running_mean", None), torch.Tensor):
            module.eval()


def stay_in_evaluation_mode(wrapped: Any, model: nn.Module, scenario: Scenario) -> None:
    """Call ``wrapped.eval()`` where the scenario trains in evaluation mode, if ``wrapped`` has a ``train()`` to take it
    back with: an ``eval()`` alone may be for evaluations only. Norms that are to stay in evaluation mode are put in it
    again, in ``model`` as well, as a script does after each ``train()``.
    """
    if scenario.norms_at_rest:
        for one in (model, wrapped):
            if isinstance(one, nn.Module):
                _put_norms_to_rest(one)
    if scenario.eval_mode and _needs_nothing(wrapped, "eval") and _needs_nothing(wrapped, "train"):
        wrapped.eval()


def _needs_nothing(wrapped: Any, name: str) -> bool:
    """Return whether ``wrapped`` has a method of this name that can be called without arguments."""
    try:
        inspect.signature(getattr(wrapped, name)).bind()
    except (AttributeError, TypeError, ValueError):
        return False
    return True


@contextmanager
def _evaluation_mode(wrapped: Any) -> Iterator[None]:
    """Call ``eval()``, and ``train()`` at the end, twice: many a loop begins an epoch with it, too. A wrapper that is
    no module and has no such methods, or different ones (``train(loader)``), may hold any module; each is then put in
    evaluation mode when its forward begins.
    """
    if _needs_nothing(wrapped, "eval") and _needs_nothing(wrapped, "train"):
        wrapped.eval()
        yield
        wrapped.train()
        wrapped.train()
        return
    met: list[nn.Module] = []

    @uncompiled
    def begin(module: nn.Module, inputs: Any) -> None:
        if module.training:
            met.append(module.eval())

    handle = register_module_forward_pre_hook(begin)
    try:
        yield
    finally:
        handle.remove()
        for module in met:
            module.train()


def evaluate_alone(scenario: Scenario, workload: Workload, model: nn.Module, journal: Journal, step: int) -> None:
    """Evaluate the bare model of the single process on the rows of each rank, and write the outputs down."""
    model.eval()
    with torch.no_grad():
        for rank in range(scenario.world_size):
            *inputs, _ = workload.micro_batch(step, 0, rank)
            journal.tensor(f"evaluation_{rank}", step, "output", model(*inputs), keep=True)
    model.train()
