"""Course style: functions beside the wrapper, called at the points at which a course's test harness calls them.

``get_ddp...(model, ...)`` wraps; ``...on_train_batch_start(model, optimizer)`` opens a step and
``...on_after_backward(model, optimizer)`` follows each backward that is not inside ``no_sync()``, as Lightning's hook
of that name does. This is the style of Stanford's CS336 assignments.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
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
        self._quiet = False

    @classmethod
    def fits(cls, wrapped: Any) -> bool:
        return False  # recognised by the functions beside it: see ``ddp_core.recognition.drive``

    def start_step(self, optimizer: torch.optim.Optimizer) -> None:
        self._optimizer = optimizer
        if START in self.companions:
            self.companions[START](self.wrapped, optimizer)

    @contextmanager
    def no_sync(self) -> Iterator[None]:
        self._quiet = self.has_no_sync
        try:
            with super().no_sync():
                yield
        finally:
            self._quiet = False

    def backward(self, loss: torch.Tensor) -> None:
        super().backward(loss)
        if not self._quiet:
            self.companions[AFTER](self.wrapped, self._optimizer)


DRIVER = CourseDriver
