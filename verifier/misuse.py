"""Was a tensor in flight misused? Then what a rank raised afterwards may be our marker's doing, and is no refusal.

Special here: only what tells of a mistake whatever the strategy claims. A wrapper that refuses may leave collectives
that nobody waits for, and gradients that autograd has meanwhile added to, or that are views of what is in flight: of
all this nothing follows. Where the wait has come, and a write before it was seen, or the marker has stayed in a
gradient, something was read or written too early.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from verifier.marker import holds_poison

if TYPE_CHECKING:
    from verifier.recording import RankRecording

WAITED_FOR = ("waited", "polled", "future")


def misused_in_flight(rank: RankRecording) -> bool:
    """Did the strategy touch what was in flight on this rank, and wait for it later?"""
    if any(c.written_in_flight and c.how in WAITED_FOR for c in rank.collectives):
        return True
    for (what, step, _), tensor in rank.tensors.items():
        if what == "gradient" and tensor.values is not None and holds_poison(tensor.values):
            return all(c.how in WAITED_FOR for c in rank.collectives if c.step <= step)
    return False
