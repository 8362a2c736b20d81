"""What ranks of a scenario tell one another beside the strategy's own communication, to do the same from then on.

Special here: it goes through the scenario's store, and not through collectives, which are the strategy's alone. A rank
that has raised says nothing, and the others do not wait for it for long.
"""

from __future__ import annotations

from contextlib import suppress
from datetime import timedelta
from typing import TYPE_CHECKING

import torch.distributed as dist

if TYPE_CHECKING:
    from verifier.worker import Subject

PATIENCE = timedelta(seconds=20)  # ranks may be late by what they compute


def said_by_all(subject: Subject, what: str, own: bool) -> list[bool]:
    """What each rank says of ``what``, by rank, this one's ``own`` in it; that of a rank that says nothing is False."""
    store, ranks = subject.store, range(subject.scenario.world_size)
    store.set(f"{what}/{subject.rank}", str(own))
    with suppress(dist.DistStoreError):
        store.wait([f"{what}/{rank}" for rank in ranks], PATIENCE)
    return [store.check([f"{what}/{rank}"]) and store.get(f"{what}/{rank}") == b"True" for rank in ranks]
