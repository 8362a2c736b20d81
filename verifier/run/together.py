"""What ranks of a scenario tell one another beside the strategy's communication, so that all go on in the same way.

Special here: it goes through the scenario's store; collectives are the strategy's alone. A rank that has raised says
nothing, and the others wait for it only briefly, but all of them come to one answer.
"""

from __future__ import annotations

from contextlib import suppress
from datetime import timedelta
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from verifier.worker import Subject

PATIENCE = timedelta(seconds=5)  # ranks may be late by what they compute; far less than it takes to call a rank hung


def any_rank_says(subject: Subject, what: str, own: bool) -> bool:
    """Return whether any rank says ``what``. All ranks have to ask, each with its ``own`` answer.

    The first rank that has heard all others, or has waited for long enough, decides for all.
    """
    store, keys = subject.store, [f"{what}/{rank}" for rank in range(subject.scenario.world_size)]
    store.set(f"{what}/{subject.rank}", str(own))
    with suppress(Exception):  # each kind of store raises its own error on a timeout
        store.wait(keys, PATIENCE)
    heard = any(store.check([key]) and store.get(key) == b"True" for key in keys)
    decided: bytes = store.compare_set(f"{what}/decided", "", str(heard))
    return decided == b"True"
