"""Nothing was reduced at all: the strategy may be wrong, or the loop did not call its method that reduces.

Special here: the verdict stays, because the strategy is not a wrapper whose ``backward()`` synchronises, as it was
assumed to be. Only the confidence in the cause is lowered, and the methods that might be meant are named.
"""

from __future__ import annotations

from verifier.judge.inquiry import AFTER_FORWARD
from verifier.recording import Recording
from verifier.verdict import Failure

MAYBE = 0.5


def temper(recording: Recording, step: int, failures: list[Failure]) -> None:
    """Lower the confidence of ``not_synchronised`` where the loop called none of a wrapper's own methods, and add that
    to the explanation."""
    methods = recording.ranks[0].notes.get("uncalled")
    issued = (c for rank in recording.ranks for c in rank.collectives)
    if not methods or any(0 <= c.step <= step and c.phase in AFTER_FORWARD for c in issued):
        return
    names = ", ".join(f"{name}()" for name in methods)
    for failure in failures:
        if failure.cause == "not_synchronised":
            failure.confidence = MAYBE
            failure.explanation += f"; no collective followed the forward, and the loop knows nothing of {names}"
            failure.hint = (
                "if the training loop has to call one of them, say so: a subclass of ddp_core.Driver whose "
                "before_step() or backward(loss) calls it (docs/driving.md), or one of the styles of --driver"
            )
