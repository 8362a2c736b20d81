"""Pairs of methods: one launches communication, another completes it, and the loop calls both. No ranks here."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from ddp_core.drivers.distributed_optimizer import DistributedOptimizerDriver
from ddp_core.drivers.finish import FinishDriver
from ddp_core.recognition import drive


class Work:
    def wait(self):
        pass


def all_reduce(tensor, *, async_op=False):
    return Work()


class Asynchronous(nn.Module):
    """Each subclass gives these two the names of a pair."""

    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(2, 2)
        self.done = []

    def forward(self, x):
        return self.layer(x)

    def _launch(self):
        self.done.append("launch")
        self.work = all_reduce(self.layer.weight, async_op=True)

    def _complete(self):
        self.done.append("complete")
        self.work.wait()


class StartFinish(Asynchronous):
    def start_gradient_synchronization(self):
        self._launch()

    def finish_gradient_synchronization(self):
        self._complete()


class ReduceWait(Asynchronous):
    def reduce_gradients(self):
        self._launch()

    def wait(self):
        self._complete()


class AllReduceWait(Asynchronous):
    def all_reduce_gradients(self):
        self._launch()

    def wait_for_gradients(self):
        self._complete()


class FinishStarts(StartFinish):
    """Not for the loop: the second calls the first."""

    def finish_gradient_synchronization(self):
        self.start_gradient_synchronization()
        self._complete()


class HooksStart(StartFinish):
    """Nor this: the backward does."""

    def __init__(self):
        super().__init__()
        self.layer.weight.register_post_accumulate_grad_hook(lambda _: self.start_gradient_synchronization())


class Overlaps(StartFinish):
    """Hooks launch by another way, and the method is for who has none."""

    def __init__(self):
        super().__init__()
        self.layer.weight.register_post_accumulate_grad_hook(lambda _: self._launch())


class Whole(Asynchronous):
    """A reduction that waits is an alternative to hooks, and no part of a pair."""

    def reduce_gradients(self):
        self._launch()
        self._complete()

    def finish_gradient_synchronization(self):
        self.done.append("finish")


def step(driver, model):
    driver.backward(model(torch.ones(1, 2)).sum())
    driver.before_step()


@pytest.mark.parametrize("kind", [StartFinish, ReduceWait, AllReduceWait, FinishStarts, HooksStart, Overlaps])
def test_each_of_a_pair_is_called_once_a_step(kind):
    model = kind()
    driver = drive(model, model)
    assert type(driver) is FinishDriver
    for num_steps in (1, 2, 3):
        step(driver, model)
        assert model.done == ["launch", "complete"] * num_steps


def test_what_waits_by_itself_is_not_called_beside_another():
    model = Whole()
    driver = drive(model, model)
    step(driver, model)
    assert model.done == ["finish"]


class Synced:
    def __init__(self, optimizer):
        self.optimizer, self.done = optimizer, []

    def sync_gradients(self):
        self.done.append("sync")

    def step(self):
        self.done.append("step")


class Steps(Synced):
    def step(self):
        self.sync_gradients()
        super().step()


class Hooked(Synced):
    def __init__(self, optimizer):
        super().__init__(optimizer)
        self.before = [self.sync_gradients]

    def step(self):
        for hook in self.before:
            hook()
        super().step()


@pytest.mark.parametrize("kind", [Synced, Steps, Hooked])
def test_an_optimizers_own_method_is_called_before_it_steps(kind):
    model = nn.Linear(2, 2)
    driver = DistributedOptimizerDriver(kind, model)
    optimizer = driver.make_optimizer(torch.optim.SGD, list(model.parameters()), lr=0.1)
    for num_steps in (1, 2):
        step(driver, model)
        driver.step(optimizer)
        assert optimizer.done == ["sync", "step"] * num_steps
