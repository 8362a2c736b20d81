"""What ranks of a scenario tell one another beside the strategy's own communication, to do the same from then on.

Special here: it goes through the scenario's store, and not through collectives, which are the strategy's alone. A rank
that has raised says nothing, and the others do not wait for it for long; but all of them come to one answer.
"""

from __future__ import annotations

from contextlib import suppress
from datetime import timedelta
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from verifier.worker import Subject

PATIENCE = timedelta(seconds=5)  # ranks may be late by what they compute; far below what a hang is told by


def any_rank_says(subject: Subject, what: str, own: bool) -> bool:
    """Does any rank say ``what``? All ranks have to ask, each with its ``own`` word.

    The first that has heard all of them, or has waited for long enough, decides for all.
    """
    store, keys = subject.store, [f"{what}/{rank}" for rank in range(subject.scenario.world_size)]
    store.set(f"{what}/{subject.rank}", str(own))
    with suppress(Exception):  # each kind of store has its own for time that ran out
        store.wait(keys, PATIENCE)
    heard = any(store.check([key]) and store.get(key) == b"True" for key in keys)
    decided: bytes = store.compare_set(f"{what}/decided", "", str(heard))
    return decided == b"True"
