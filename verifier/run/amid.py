"""What a loop does between two micro-batches of one step: it validates, or saves, as it may do at any time.

Special here: what has been accumulated so far must be there after it, and nothing else is judged.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from verifier.run.evaluating import evaluate
from verifier.run.saving import save_amid

if TYPE_CHECKING:
    from verifier.worker import Subject


def amid(subject: Subject, step: int, micro: int) -> None:
    """What the scenario has after the ``micro``-th backward of ``step``."""
    if subject.scenario.evaluate_amid and micro == 0:
        evaluate(subject, step)
    if subject.scenario.save_amid and micro == 1:
        save_amid(subject, step)
