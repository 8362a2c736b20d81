"""Course style: functions beside the wrapper, called at the points that a course's test harness calls them.

``get_ddp...(model, ...)`` wraps; ``...on_train_batch_start(model, optimizer)`` opens a step and
``...on_after_backward(model, optimizer)`` ends its last backward. The style of Stanford's CS336 assignments.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

from ddp_core.driver import Driver

START, AFTER = "on_train_batch_start", "on_after_backward"


class CourseDriver(Driver):
    style = "course"
    specificity = 40

    def __init__(self, wrapped: Any, model: nn.Module | None = None) -> None:
        super().__init__(wrapped, model)
        self._optimizer: torch.optim.Optimizer | None = None

    @classmethod
    def fits(cls, wrapped: Any) -> bool:
        return False  # the functions beside it are what tells: see ``ddp_core.driver.drive``

    def start_step(self, optimizer: torch.optim.Optimizer) -> None:
        self._optimizer = optimizer
        if START in self.companions:
            self.companions[START](self.wrapped, optimizer)

    def before_step(self) -> None:
        self.companions[AFTER](self.wrapped, self._optimizer)


DRIVER = CourseDriver
