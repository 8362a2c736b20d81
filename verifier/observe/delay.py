"""A slow network on demand: which collective starts late on which rank, and which completes late. Seeded.

Special here: whatever it does, a real transport may do. A rank starts late, a result that has arrived is not yet seen,
a later collective is seen complete before an earlier one. A strategy that is right does not notice; one that launches
by arrival, or polls and guesses, does. All ranks draw from the same seed, so the slow one is the same for all.
"""

from __future__ import annotations

import random
from dataclasses import dataclass

STRETCH = 4  # collectives in a row for which one rank is the slow one


@dataclass(frozen=True)
class Delay:
    """How late things are for rank ``rank`` of ``world_size``; nothing is later than ``max_ms`` milliseconds."""

    seed: int
    rank: int
    world_size: int
    max_ms: float = 5.0

    def before_issue(self, seq: int) -> float:
        """Seconds that this rank's collective number ``seq`` starts late: none but on the slow rank of the moment."""
        slow = random.Random(f"{self.seed}/slow/{seq // STRETCH}").randrange(self.world_size)
        return self._draw("issue", seq) if slow == self.rank else 0.0

    def before_landing(self, seq: int) -> float:
        """Seconds from the start of collective number ``seq`` before which it is not seen to be complete.

        Every second one is on time: it overtakes those before it.
        """
        draw = self._draw("landing", seq)
        return draw if draw > self.max_ms / 2000 else 0.0

    def _draw(self, what: str, seq: int) -> float:
        return random.Random(f"{self.seed}/{what}/{self.rank}/{seq}").random() * self.max_ms / 1000
