"""What a loop may do between two micro-batches of one step: validate, or save a checkpoint.

Special here: only one thing is judged, that the gradients accumulated so far are still there afterwards.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from verifier.run.evaluating import evaluate
from verifier.run.saving import save_amid

if TYPE_CHECKING:
    from verifier.worker import Subject


def amid(subject: Subject, step: int, micro: int, *, last: bool) -> None:
    """Do what the scenario has after the ``micro``-th backward of ``step``, unless it is the ``last``: then the loop
    goes on to the optimizer.
    """
    if last:
        return
    if subject.scenario.evaluate_amid and micro == 0:
        evaluate(subject, step)
    if subject.scenario.save_amid and micro == 1:
        save_amid(subject, step)
