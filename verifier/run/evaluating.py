"""An evaluation between two steps, as a loop that validates does it: on a rank, and in the single process.

Special here: what comes out is written down. A rank evaluates its own rows, so the single process evaluates every
rank's, one after the other, with the weights that it has at that moment.
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


BEFORE_ALL = -1  # the step that an evaluation before the first one comes after


def evaluate(subject: Subject, step: int) -> Any:
    """A forward of the wrapped model in evaluation mode, without gradients; returns what it returned. Who disclaims
    evaluations is asked for none.
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
    """The evaluation before the first step, where the scenario has one."""
    if BEFORE_ALL in subject.scenario.evaluate_after:
        evaluate(subject, BEFORE_ALL)


def put_in_mode(model: nn.Module, scenario: Scenario) -> None:
    """As a script does before it wraps: the whole in training mode or in the other, or norms alone in the other."""
    model.train(not scenario.eval_mode)
    if scenario.norms_at_rest:
        _put_norms_to_rest(model)


def _put_norms_to_rest(model: nn.Module) -> None:
    for module in model.modules():
        if isinstance(getattr(module, "running_mean", None), torch.Tensor):
            module.eval()


def stay_in_evaluation_mode(wrapped: Any, model: nn.Module, scenario: Scenario) -> None:
    """``eval()`` on what wraps a model that is in evaluation mode already, where the scenario trains it in that, and
    where a loop could take it back by ``train()``: what has ``eval()`` alone may be for evaluations alone. Norms that
    are to rest are put to rest again, in ``model`` as well: a script does so after each ``train()``.
    """
    if scenario.norms_at_rest:
        for one in (model, wrapped):
            if isinstance(one, nn.Module):
                _put_norms_to_rest(one)
    if scenario.eval_mode and _needs_nothing(wrapped, "eval") and _needs_nothing(wrapped, "train"):
        wrapped.eval()


def _needs_nothing(wrapped: Any, name: str) -> bool:
    """Is there a method of this name that can be called without arguments?"""
    try:
        inspect.signature(getattr(wrapped, name)).bind()
    except (AttributeError, TypeError, ValueError):
        return False
    return True


@contextmanager
def _evaluation_mode(wrapped: Any) -> Iterator[None]:
    """``eval()``, and ``train()`` at the end. What is no module and has no such methods, or others of these names
    (``train(loader)``), may hold any module: a loop would have to know it, and here it is met when its forward begins.
    """
    if _needs_nothing(wrapped, "eval") and _needs_nothing(wrapped, "train"):
        wrapped.eval()
        yield
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
    """The same of a bare model, on the rows of each rank."""
    model.eval()
    with torch.no_grad():
        for rank in range(scenario.world_size):
            *inputs, _ = workload.micro_batch(step, 0, rank)
            journal.tensor(f"evaluation_{rank}", step, "output", model(*inputs), keep=True)
    model.train()
