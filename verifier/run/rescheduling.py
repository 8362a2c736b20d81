"""Changing other options than the learning rate between steps, on all ranks or on none.

Special here: an optimizer that is sharded by hand may show an option only where it has something to step, and a rank
that owns nothing of a group shows none. If each rank decided for itself, the loop would make replicas differ.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from verifier.lines import NOT_RESCHEDULED
from verifier.run.together import any_rank_says
from verifier.scheduling import hides_others, reschedule_others

if TYPE_CHECKING:
    from verifier.worker import Subject


def reschedule_alike(subject: Subject, step: int) -> None:
    """After the scenario's step change betas, decay and a rate; write down if no rank did, as one could not."""
    if step != subject.scenario.new_options_after:
        return
    if any_rank_says(subject, NOT_RESCHEDULED, hides_others(subject.optimizer)):
        subject.journal.note(NOT_RESCHEDULED, step)
    else:
        reschedule_others(subject.optimizer)
