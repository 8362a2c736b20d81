"""What a driver calls: methods found by their names, once each, and those of an optimizer or engine. No ranks here."""

from __future__ import annotations

import sys
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from types import SimpleNamespace

import pytest
import torch
from torch import nn

from ddp_core.driver import Driver
from ddp_core.drivers.engine import EngineDriver
from ddp_core.methods import CalledByLoop, NotDrivable, first_of, that_a_loop_may_call
from ddp_core.recognition import drive, recognise


class Owner:
    calls = 0

    def __call__(self):
        pass

    def sync_gradients(self):
        self.calls += 1

    def reduce_grads(self, bucket):
        pass

    def no_sync(self):
        pass

    def finish_up(self):
        pass


def test_what_is_called_by_its_owner_is_not_called_again():
    owner, other = Owner(), Owner()
    call, left = CalledByLoop(owner, "sync_gradients"), CalledByLoop(other, "sync_gradients")
    for _ in range(3):
        owner.sync_gradients()
        call()
        left()
    assert (owner.calls, other.calls) == (3, 3)
    assert "sync_gradients" not in vars(owner)


def test_a_first_step_decides():
    owner = Owner()
    call = CalledByLoop(owner, "sync_gradients")
    owner.sync_gradients()
    call()
    call()
    assert owner.calls == 1


class Slim:
    __slots__ = ("calls",)

    def __init__(self):
        self.calls = 0

    def sync_gradients(self):
        self.calls += 1


class BoundEarly(Owner):
    def __init__(self):
        self.at_the_end = partial(lambda callback: callback(), self.sync_gradients)


@pytest.mark.parametrize("owner", [Slim(), BoundEarly()])
def test_calls_that_do_not_look_at_an_attribute_are_seen(owner):
    by_itself = getattr(owner, "at_the_end", owner.sync_gradients)
    call, other = CalledByLoop(owner, "sync_gradients"), CalledByLoop(type(owner)(), "sync_gradients")
    call.forget()
    by_itself()
    call()
    other.forget()
    by_itself()
    other()
    assert owner.calls == 2, "each call of its own, and none of the loop's"
    assert other._owner.calls == 1, "another object's calls are not its own"
    assert sys.getprofile() is None


class Later:
    async def sync_gradients(self): ...

    @contextmanager
    def average_gradients(self):
        yield


@pytest.mark.parametrize(
    ("name", "told"), [("sync_gradients", "a coroutine"), ("average_gradients", "a context manager")]
)
def test_a_call_that_does_nothing_by_itself_is_asked_about(name, told):
    with pytest.raises(NotDrivable, match=f"Later.{name}.. returns {told}"):
        CalledByLoop(Later(), name)()


@dataclass
class Prepared:
    model: nn.Module
    optimizer: torch.optim.Optimizer
    scheduler: None = None


@pytest.mark.parametrize("made", [Prepared, lambda **held: held, SimpleNamespace])
def test_what_is_returned_by_name_is_taken_apart(made):
    model = nn.Linear(1, 1)
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    driver = drive(made(model=model, optimizer=optimizer), nn.Linear(1, 1))
    assert (driver.style, driver.wrapped, driver.optimizer_of_wrap) == ("native", model, optimizer)


def test_a_loss_scaler_beside_the_model_scales_and_is_updated():
    class Scaler:
        called = ""

        def scale(self, loss):
            return loss * 4

        def step(self, optimizer):
            self.called += "step "

        def update(self):
            self.called += "update"

    model, scaler = nn.Linear(1, 1, bias=False), Scaler()
    driver = drive(scaler, model)
    assert (driver.style, driver.can_clip) == ("step_with", False)
    driver.backward(model(torch.ones(1, 1)).sum())
    driver.step(torch.optim.SGD(model.parameters(), 0.1))
    assert (model.weight.grad.item(), scaler.called) == (4.0, "step update")


def test_what_is_drained_before_a_backward_is_still_the_loops_to_call():
    owner = Owner()
    call = CalledByLoop(owner, "sync_gradients")
    owner.sync_gradients()  # its own call, in a forward
    call.forget()
    call()
    call()
    assert owner.calls == 3


def test_a_buffer_of_gradients_is_cleared_beside_them():
    class Buffered(nn.Linear):
        cleared = 0

        def zero_grad_buffer(self):
            self.cleared += 1

    wrapped = Buffered(2, 2)
    driver = Driver(wrapped, wrapped)
    driver.zero_grad(torch.optim.SGD(wrapped.parameters(), 0.1))
    assert wrapped.cleared == 1


def test_an_optimizer_that_is_made_runs_the_backward_if_it_can():
    class Made(torch.optim.SGD):
        num_backwards = 0

        def backward(self, loss):
            self.num_backwards += 1
            loss.backward()

    model = nn.Linear(2, 2)
    driver = Driver(model, model)
    driver.optimizer_made = Made(model.parameters(), lr=0.1)
    driver.backward(model(torch.ones(1, 2)).sum())
    assert driver.optimizer_made.num_backwards == 1


def test_names_and_arguments():
    assert first_of(Owner(), ["reduce_grads", "sync_gradients"]) == "sync_gradients"  # the former takes a bucket
    assert first_of(Owner(), ["reduce_grads"], 1) == "reduce_grads"
    assert set(that_a_loop_may_call(Owner())) == {"sync_gradients", "finish_up"}, "a bucket is a hook's"
    assert recognise(Owner()).style == "explicit"


def test_a_switch_keeps_a_backward_from_synchronising():
    """torch's ``fully_shard`` and ``replicate`` have a switch instead of ``no_sync()``; it is switched on again."""

    class Switched(nn.Module):
        def __init__(self):
            super().__init__()
            self.asked = []

        def set_requires_gradient_sync(self, on):
            self.asked.append(on)

    wrapped = Switched()
    driver = Driver(wrapped, wrapped)
    assert driver.has_no_sync
    with pytest.raises(KeyError), driver.no_sync():
        raise KeyError
    assert wrapped.asked == [False, True]


@pytest.mark.parametrize(("own", "called"), [(True, ["engine"]), (False, ["optimizer"])])
def test_an_engines_own_zero_grad_is_called(own, called):
    cleared = []

    class Engine(nn.Module):
        def backward(self, loss): ...
        def step(self): ...

    if own:
        Engine.zero_grad = lambda self: cleared.append("engine")
    optimizer = torch.optim.SGD([nn.Parameter(torch.ones(1))], lr=1.0)
    optimizer.zero_grad = lambda set_to_none=True: cleared.append("optimizer")
    EngineDriver(Engine(), nn.Linear(1, 1)).zero_grad(optimizer)
    assert cleared == called
