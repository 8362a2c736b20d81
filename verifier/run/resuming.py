"""Saving and resuming, as a run that was cut off does it: a fresh replica takes over by ``state_dict()``.

Special here: what is loaded was *saved*, to bytes and back, so that no tensor of the old replica lives on in the new
one; and the fresh replica is built from other random numbers, so that whatever is not carried over shows. A rank that
has nothing to save loads what rank 0 has saved: there, rank 0 saves for all, and everybody reads the one file. Or it
loads nothing, and rank 0 hands out what it has read while it loads (``own_saves``, which is tried where that is not).
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
    """Save, build anew, load, go on. False: the strategy offers no ``state_dict()``, and this is not claimed."""
    driver = subject.driver
    if not offers_state(subject):
        return False
    try:
        subject.journal.note("saved_under_way", subject.observer.on_their_way())
        saved: Any = driver.state_dict()
        saved = {} if saved is None else saved
        if isinstance(saved, Mapping):
            subject.journal.note("saved_names", names_in(saved))
        else:
            subject.journal.note(SAVED_WITHOUT_NAMES, type(saved).__name__)
        subject.journal.note("bare_names", subject.names.all)
        subject.journal.note("transient_names", subject.names.transient)
        state = _saved(subject, "model", saved)
        optimizer_state = _saved(subject, "optimizer", subject.optimizer.state_dict())
        kept = _saved(subject, "keeper", kept_beside(driver)) if driver.state_keeper is not None else None
        torch.manual_seed(subject.scenario.seed + 77_000 + subject.rank)
        with float32_by_default():
            subject.model = subject.workload.placed(subject.rank)
        fresh = wrapped_by(subject, strategy, subject.model)
        if subject.scenario.built_first:  # copies that an optimizer made of the weights are then of others
            subject.take_over(fresh)
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
        if subject.rank == 0:  # nobody has to wait for what does not come
            for what in ("model", "optimizer", "keeper"):
                subject.store.compare_set(f"saved/{what}", "", "")  # only where there is nothing yet
        raise StrategyError.of(f"when the run was saved and resumed after step {step}", error) from error
    return True


def _train_for_nothing(subject: Subject, step: int) -> None:
    """A step of the fresh replica; and an evaluation, which waits for what the step may have left under way."""
    take_unrecorded_step(subject, subject.driver, subject.optimizer, step, whose="a replica that is loaded into later")
    if subject.observer.on_their_way():
        evaluate(subject, step)


def names_in(saved: Mapping[Any, Any]) -> list[str]:
    """All names under which ``saved`` has something, those of dictionaries inside it as well: ``model.0.weight``."""
    inner = [
        f"{name}.{of_inner}"
        for name, value in saved.items()
        if isinstance(value, Mapping)
        for of_inner in names_in(value)
    ]
    return [*map(str, saved), *inner]


def _saved(subject: Subject, what: str, state: Any) -> Any:
    """What is loaded of this rank's ``state``, or of rank 0's if there is none."""
    file = io.BytesIO()
    torch.save(state, file)
    saved = file.getvalue()
    if subject.rank == 0:
        subject.store.set(f"saved/{what}", saved)
    elif isinstance(state, Mapping | None) and not state and not subject.scenario.own_saves:
        subject.journal.note(TOOK_RANK_0S, True)
        saved = subject.store.get(f"saved/{what}") or saved
    return torch.load(io.BytesIO(saved), map_location=subject.workload.device, weights_only=False)
