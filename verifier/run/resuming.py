"""Saving and resuming, as after a run that was cut off: a fresh replica takes over by ``state_dict()``.

Special here: the state is *saved* to bytes and loaded back, so that no tensor of the old replica lives on in the new
one. The fresh replica is built from other random numbers, so that whatever is not carried over shows. A rank that has
nothing to save loads what rank 0 has saved: there, rank 0 saves for all, and everybody reads the one file. Or it loads
nothing, and rank 0 hands out what it has read while it loads (``own_saves``, tried where that fails).
"""

from __future__ import annotations

import io
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import torch

from verifier.lines import SAVED_WITHOUT_NAMES, TOOK_RANK_0S
from verifier.run.evaluating import evaluate
from verifier.run.loading import LoadedStrategy, StrategyError
from verifier.run.saving import kept_beside, offers_state
from verifier.run.unrecorded import take_unrecorded_step
from verifier.run.wrapping import wrapped_by
from verifier.workload import float32_by_default

if TYPE_CHECKING:
    from verifier.worker import Subject


def resume(subject: Subject, strategy: LoadedStrategy, step: int) -> bool:
    """Save, build anew, load, go on, if that is to be after ``step``; -1: before the first. Twice if the scenario says
    so, with nothing between. False: the strategy offers no ``state_dict()``, and this is not claimed.
    """
    if step != subject.scenario.resume_after:
        return True
    if not offers_state(subject):
        return False
    for time in range(2 if subject.scenario.resumed_twice else 1):
        _resume_once(subject, strategy, step, time)
    return True


def _resume_once(subject: Subject, strategy: LoadedStrategy, step: int, time: int) -> None:
    driver = subject.driver
    try:
        if time == 0:  # what was just loaded says nothing about the weights that the steps left
            subject.journal.note("saved_under_way", subject.observer.on_their_way())
        saved: Any = driver.state_dict()
        saved = {} if saved is None else saved
        if isinstance(saved, Mapping):
            subject.journal.note("saved_names", names_in(saved))
        else:
            subject.journal.note(SAVED_WITHOUT_NAMES, type(saved).__name__)
        subject.journal.note("bare_names", subject.names.all)
        subject.journal.note("transient_names", subject.names.transient)
        state = _saved(subject, f"{time}/model", saved)
        optimizer_state = _saved(subject, f"{time}/optimizer", subject.optimizer.state_dict())
        kept = _saved(subject, f"{time}/keeper", kept_beside(driver)) if driver.state_keeper is not None else None
        torch.manual_seed(subject.scenario.seed + 77_000 + subject.rank + 1000 * time)
        with float32_by_default():
            subject.model = subject.workload.placed(subject.rank)
        fresh = wrapped_by(subject, strategy, subject.model)
        if subject.scenario.built_first:  # copies that an optimizer made of the weights are then of other weights
            subject.take_over(fresh)
            subject.record("fresh_weight", step)  # for ``judge.overwritten``
        if subject.scenario.stepped_first:
            _train_for_nothing(subject, step)
        subject.journal.note("loading", True)
        fresh.load_state_dict(state)
        if not subject.scenario.built_first:
            subject.take_over(fresh)
        subject.optimizer.load_state_dict(optimizer_state)
        if kept is not None:
            fresh.state_keeper.load_state_dict(kept)
        subject.journal.note("loading", False)
    except StrategyError:
        raise
    except BaseException as error:
        if subject.rank == 0:  # so that no rank waits for what does not come
            for what in ("model", "optimizer", "keeper"):
                subject.store.compare_set(f"saved/{time}/{what}", "", "")  # only where there is nothing yet
        again = " and at once saved and resumed again" if time else ""
        when = f"after step {step}" if step >= 0 else "before the first step"
        raise StrategyError.of(f"when the run was saved and resumed {when}{again}", error) from error


def _train_for_nothing(subject: Subject, step: int) -> None:
    """Take a step of the fresh replica, and an evaluation if the step left communication in flight, to wait for it."""
    take_unrecorded_step(subject, subject.driver, subject.optimizer, step, whose="a replica that is loaded into later")
    if subject.observer.on_their_way():
        evaluate(subject, step)


def names_in(saved: Mapping[Any, Any]) -> list[str]:
    """Return all names under which ``saved`` has something, those in inner dictionaries as ``model.0.weight``."""
    inner = [
        f"{name}.{of_inner}"
        for name, value in saved.items()
        if isinstance(value, Mapping)
        for of_inner in names_in(value)
    ]
    return [*map(str, saved), *inner]


def _saved(subject: Subject, what: str, state: Any) -> Any:
    """Return what is loaded in place of this rank's ``state``: itself, or rank 0's if it is empty."""
    file = io.BytesIO()
    torch.save(state, file)
    saved = file.getvalue()
    if subject.rank == 0:
        subject.store.set(f"saved/{what}", saved)
    elif isinstance(state, Mapping | None) and not state and not subject.scenario.own_saves:
        subject.journal.note(TOOK_RANK_0S, True)
        saved = subject.store.get(f"saved/{what}") or saved
    return torch.load(io.BytesIO(saved), map_location=subject.workload.device, weights_only=False)
