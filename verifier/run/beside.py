"""A second model in the same process, under the same strategy, trained in turns with the one that is judged.

Examples are adversarial training, distillation with a student and a trained teacher, and an actor with its critic.
Special here: nothing of the second model is recorded. It exposes state that strategies keep outside their instances: a
registry by parameter names, a list on the class, a flag that says that hooks are in place. Some scenarios end with a
step in which one backward runs through both, as through an encoder and a decoder that were wrapped each by itself.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

import torch

from verifier.run import grouping
from verifier.run.loading import LoadedStrategy, StrategyError
from verifier.run.streams import draw_on, drawn_so_far, seed_torch
from verifier.run.unrecorded import APART, loss_of_unrecorded, take_unrecorded_step
from verifier.run.wrapping import wrapped_by
from verifier.workload import float32_by_default

if TYPE_CHECKING:
    from ddp_core.driver import Driver
    from verifier.worker import Subject

WHOSE = "a second model"


@contextmanager
def beside_another(subject: Subject, strategy: LoadedStrategy) -> Iterator[Another]:
    """Wrap the second model of ``subject``'s process, where the scenario has one, before or after the ``with`` body.
    The body wraps the model that is judged.
    """
    another, when = Another(subject, strategy), subject.scenario.beside
    if when == "before":
        another.wrap()
    yield another
    if when == "after":
        names = subject.names
        another.wrap()
        subject.names = names


class Another:
    """The second model; until ``wrap()`` there is none, and ``step()`` does nothing."""

    def __init__(self, subject: Subject, strategy: LoadedStrategy) -> None:
        self._subject, self._strategy = subject, strategy
        self._driver: Driver | None = None
        self._optimizer: torch.optim.Optimizer

    def wrap(self) -> None:
        subject, scenario = self._subject, self._subject.scenario
        drawn = drawn_so_far()
        seed_torch(scenario.seed + APART)  # equal on all ranks
        with float32_by_default():
            model = subject.workload.placed(subject.rank)
        draw_on(drawn)
        model.train()
        self._driver = driver = wrapped_by(subject, self._strategy, model)
        named = [(name, parameter) for name, parameter in driver.named_parameters() if parameter.requires_grad]
        cls, options = subject.workload.optimizer()
        try:
            self._optimizer = grouping.optimizer_with_less(driver, scenario, named, cls, options, subject.journal)
        except BaseException as error:
            raise StrategyError.of("while the optimizer of a second model was made", error) from error

    def step(self, step: int) -> None:
        """Take one step of the second model, if there is one, before the judged model's ``step``."""
        driver, subject = self._driver, self._subject
        if driver is None or self._joins(step):
            return
        take_unrecorded_step(subject, driver, self._optimizer, step, whose=WHOSE)

    def with_its_own(self, loss: torch.Tensor, step: int) -> torch.Tensor:
        """Return ``loss`` with the second model's added, where one backward is run through both; else ``loss`` itself.

        The second model's forward comes last, so that its gradients come first. It takes no step: this is the last.
        """
        if self._driver is None or not self._joins(step) or not loss.requires_grad:
            return loss
        return loss + loss_of_unrecorded(self._subject, self._driver, self._optimizer, step, whose=WHOSE)

    def _joins(self, step: int) -> bool:
        scenario = self._subject.scenario
        return scenario.one_backward_for_both and step == scenario.num_steps - 1
