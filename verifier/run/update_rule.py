"""Whose update rule it is: that of the optimizer that the loop asks for, or the strategy's own.

Special here: the ranks look for it once a step has been taken. A rule of the strategy's own (Muon, Lion, another AdamW)
is no mistake: the single process is then replaced by the same strategy on one rank (``alone``).
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

DEPTH = 4  # how deep optimizers are looked for: driver, wrapper, list, optimizer


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
        """Return the name of what an engine steps by if it never got the optimizer that the loop asked for; else None.

        ``begun`` are the ids of the optimizers that have begun in the first step.
        """
        if not self._is_engine and not self._came_along:
            return None
        if self.holds(optimizer):
            return type(optimizer).__name__
        return None if self._has_room or id(optimizer) in begun else "the engine's"


def tell_at_start(subject: Subject, asked: type[torch.optim.Optimizer]) -> None:
    """Note a rule that is known at the start: the contract says "own", or it is another of torch's classes."""
    declared = type(subject.optimizer).__name__ if subject.contract.optimizer == "own" else None
    if (own := declared or another_of_torchs(subject.optimizer, asked)) is not None:
        subject.journal.note("own_optimizer", own)


def tell_after_step(subject: Subject, asked: Any) -> None:
    """Note a class of the strategy's own, which may mean a rule of its own; weights decide (``judge/own_rule.py``).

    ``brought``: the name of the class. ``own_rule``: the same, noted in two cases. A driver of the strategy's makes the
    optimizer, and the class asked for is nowhere in it, or not alone. Or an engine steps by an optimizer that it
    brought along, of whatever class: then nothing of what the loop asks for has reached it.
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
    """Return the name of the optimizer's class if it is one of torch's, but not the one asked for. None: it is that one
    (with other options it is wrong), or a class of the strategy's own.
    """
    kind = type(optimizer)
    torchs = isinstance(optimizer, torch.optim.Optimizer) and getattr(torch.optim, kind.__name__, None) is kind
    return kind.__name__ if torchs and kind is not asked else None


def makes_its_own(driver: Driver) -> bool:
    """Return whether ``make_optimizer`` is a stranger's. ``wrap_optimizer(cls, ...)`` is held to the class it gets."""
    maker = next(kind for kind in type(driver).__mro__ if "make_optimizer" in vars(kind))
    return maker.__module__.split(".")[0] != "ddp_core"


def _is_all_there_is(asked: type[torch.optim.Optimizer], subject: Subject) -> bool:
    """Return whether all optimizers behind the one that the loop holds are of the class asked for, and there is one."""
    found = [one for one in _optimizers_in([subject.optimizer, subject.driver]) if one is not subject.optimizer]
    return bool(found) and all(isinstance(one, asked) for one in found)


def _optimizers_in(things: Iterable[Any], depth: int = DEPTH) -> Iterator[torch.optim.Optimizer]:
    """Yield optimizers in ``things``, and in what those hold. Types decide: a proxy's attributes run its own code."""
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
