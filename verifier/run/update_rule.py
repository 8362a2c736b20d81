"""Whose update rule is it: that of the optimizer that the loop asks for, or the strategy's own?

Special here: it is found on the ranks by looking, once a step has been taken. A rule of its own is no mistake (Muon,
Lion, another AdamW): what a single process has is then what the same strategy computes on one rank (``alone``).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any

import torch
from torch import nn

from ddp_core.driver import Driver
from ddp_core.drivers.engine import EngineDriver

if TYPE_CHECKING:
    from verifier.worker import Subject

DEPTH = 4  # how deep optimizers are looked for in what holds them: driver, wrapper, list, optimizer


class Brought:
    """What a strategy holds before the loop makes an optimizer: an engine may have one already, or no room for one."""

    def __init__(self, driver: Driver) -> None:
        held = [getattr(driver.wrapped, "optimizer", None), *getattr(driver.wrapped, "__dict__", {}).values()]
        self._held = [] if driver.optimizer_went_in else [driver.optimizer_of_wrap, driver.wrapped, *held]
        self._is_engine, self._has_room = isinstance(driver, EngineDriver), hasattr(driver.wrapped, "optimizer")
        self._came_along = driver.optimizer_of_wrap is not None and not driver.optimizer_went_in

    def holds(self, optimizer: Any) -> bool:
        return optimizer is not None and any(optimizer is thing for thing in self._held)

    def steps_by(self, optimizer: Any, begun: set[int]) -> str | None:
        """What an engine steps by, where the optimizer that is asked for never reached it; else None.

        ``begun`` are the ids of those that have begun in the first step.
        """
        if not self._is_engine and not self._came_along:
            return None
        if self.holds(optimizer):
            return type(optimizer).__name__
        return None if self._has_room or id(optimizer) in begun else "the engine's"


def tell_at_start(subject: Subject, asked: type[torch.optim.Optimizer]) -> None:
    """Note what is sure when the optimizer is made: the contract says so, or torch has another one of that name."""
    declared = type(subject.optimizer).__name__ if subject.contract.optimizer == "own" else None
    if (own := declared or another_of_torchs(subject.optimizer, asked)) is not None:
        subject.journal.note("own_optimizer", own)


def tell_after_step(subject: Subject, asked: Any) -> None:
    """Note what may be so, and what weights decide (``own_rule.settle``): a class of the strategy's own.

    ``brought``: its name. ``own_rule``: the same, where a driver of the strategy's makes the optimizer, and the class
    that the loop asked for is nowhere in it, or not alone; or where an engine steps by what it has brought along, of
    whatever class: then nothing of what the loop asks for has reached it.
    """
    optimizer = subject.optimizer
    if not isinstance(asked, type):  # a workload may ask for a function that makes several
        return
    if (engines := subject.brought.steps_by(optimizer, subject.begun)) is not None:
        subject.journal.note("own_rule", engines)
    if isinstance(optimizer, asked) or another_of_torchs(optimizer, asked) is not None:
        return
    name = type(optimizer).__name__
    subject.journal.note("brought", name)
    if makes_its_own(subject.driver) and not _is_all_there_is(asked, subject):
        subject.journal.note("own_rule", name)


def another_of_torchs(optimizer: Any, asked: type[torch.optim.Optimizer]) -> str | None:
    """The name of another of torch's optimizers than the one asked for. None: it is that one (with other options it is
    wrong), or a class of the strategy's own.
    """
    kind = type(optimizer)
    torchs = isinstance(optimizer, torch.optim.Optimizer) and getattr(torch.optim, kind.__name__, None) is kind
    return kind.__name__ if torchs and kind is not asked else None


def makes_its_own(driver: Driver) -> bool:
    """Is ``make_optimizer`` a stranger's? What ``wrap_optimizer(cls, ...)`` makes is held to the class it is given."""
    maker = next(kind for kind in type(driver).__mro__ if "make_optimizer" in vars(kind))
    return maker.__module__.split(".")[0] != "ddp_core"


def _is_all_there_is(asked: type[torch.optim.Optimizer], subject: Subject) -> bool:
    """Does an optimizer of the class asked for do the work behind the one that the loop holds, and no other?"""
    found = [one for one in _optimizers_in([subject.optimizer, subject.driver]) if one is not subject.optimizer]
    return bool(found) and all(isinstance(one, asked) for one in found)


def _optimizers_in(things: Iterable[Any], depth: int = DEPTH) -> Iterator[torch.optim.Optimizer]:
    """Optimizers among ``things``, and among what those hold. By their types: proxies answer with code of their own."""
    for thing in things:
        if issubclass(type(thing), torch.optim.Optimizer):
            yield thing
        if depth == 0 or issubclass(type(thing), torch.Tensor | nn.Module):
            continue
        if issubclass(type(thing), dict):
            yield from _optimizers_in(list(thing.values()), depth - 1)
        elif issubclass(type(thing), list | tuple | set):
            yield from _optimizers_in(list(thing), depth - 1)
        elif isinstance(held := getattr(thing, "__dict__", None), dict) and not issubclass(type(thing), type):
            yield from _optimizers_in(list(held.values()), depth - 1)
