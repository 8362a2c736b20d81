"""Objects that synchronise in one method and step in another: the loop calls both, unless one calls the other."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from ddp_core.recognition import recognise


class Both(nn.Module):
    """Synchronises in one method and steps in another; a loop must call both."""

    def __init__(self, **held):
        super().__init__()
        self.calls = []
        vars(self).update(held)

    def sync_gradients(self):
        self.calls.append("sync_gradients")


class StepsWith(Both):
    def step(self, optimizer):
        self.calls.append("step")


class StepsItself(Both):
    def step(self):
        self.calls.append("step")


class EngineThatWaits(StepsItself):
    def backward(self, loss):
        self.calls.append("backward")


class CallsItInTheStep(StepsWith):
    def step(self, optimizer):
        self._reduce()
        super().step(optimizer)

    def _reduce(self):
        for _ in range(1):
            [reduce() for reduce in (self.sync_gradients,)]


class CallsItInTheBackward(EngineThatWaits):
    def backward(self, loss):
        (lambda: self.sync_gradients())()


class MayCallItInTheBackward(EngineThatWaits):
    def backward(self, loss, last=False):
        if last:
            self.sync_gradients()


def reduced_by(wrapped):
    wrapped.sync_gradients()


class CallsItBesideItsClass(StepsItself):
    def step(self):
        reduced_by(self)
        super().step()


class CallsItByAnotherName(StepsItself):
    def __init__(self, **held):
        super().__init__(**held)
        self.ready = self.sync_gradients

    def step(self):
        self.ready()
        super().step()


class Beside:
    def __init__(self, **held):
        self.calls = []
        vars(self).update(held)

    def synchronize(self):
        self.calls.append("sync_gradients")


class BesideStepsWith(Beside):
    def step(self, optimizer):
        self.calls.append("step")


class BesideStepsItself(Beside):
    def step(self):
        self.calls.append("step")


@pytest.mark.parametrize(
    ("kind", "holds", "style", "calls"),
    [
        (StepsWith, None, "step_with", ["sync_gradients", "step"]),
        (StepsItself, "optimizer", "step", ["sync_gradients", "step"]),
        (StepsItself, "outer", "explicit", ["sync_gradients"]),
        (StepsItself, None, "explicit", ["sync_gradients"]),  # without an optimizer, what its step() does is unknown
        (EngineThatWaits, None, "engine", ["backward", "sync_gradients", "step"]),
        (CallsItInTheStep, None, "step_with", ["sync_gradients", "step"]),
        (CallsItBesideItsClass, "optim", "step", ["sync_gradients", "step"]),
        (CallsItByAnotherName, "opt", "step", ["sync_gradients", "step"]),
        (CallsItInTheBackward, None, "engine", ["sync_gradients", "step"]),
        (MayCallItInTheBackward, None, "engine", ["sync_gradients", "step"]),
        (BesideStepsWith, None, "step_with", ["sync_gradients", "step"]),
        (BesideStepsItself, "optimizer", "step", ["sync_gradients", "step"]),
    ],
)
def test_what_synchronises_in_one_method_and_steps_in_another_has_both_called(kind, holds, style, calls):
    model = nn.Linear(1, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    wrapped = kind(**{holds: optimizer} if holds else {})
    driver = recognise(wrapped)(wrapped, model)
    assert driver.style == style
    driver.backward(model(torch.ones(1, 1)).sum())
    driver.before_step()
    driver.step(optimizer)
    assert wrapped.calls == calls
