"""A slow network on demand: which collective starts late on which rank, and which completes late. Seeded.

Special here: a real transport may do all of this. A rank starts late, a result that has arrived is not yet seen, a
later collective is seen complete before an earlier one. A correct strategy gives the same results; one that launches by
arrival, or polls and guesses, does not. All ranks draw from the same seed, so the slow one is the same for all.
"""

from __future__ import annotations

import random
from dataclasses import dataclass

FUTURES = 20  # times ``max_ms``, for the first future of a step and every eighth after it: longer than the step takes
STRETCH = 4  # collectives in a row for which one rank is the slow one


@dataclass(frozen=True)
class Delay:
    """How late things are for rank ``rank`` of ``world_size``: by ``max_ms`` milliseconds, futures by more."""

    seed: int
    rank: int
    world_size: int
    max_ms: float = 5.0

    def before_issue(self, seq: int) -> float:
        """Return by how many seconds this rank's collective ``seq`` starts late: 0 but on the currently slow rank."""
        slow = random.Random(f"{self.seed}/slow/{seq // STRETCH}").randrange(self.world_size)
        return self._draw("issue", seq) if slow == self.rank else 0.0

    def before_landing(self, seq: int) -> float:
        """Return the seconds from the start of collective ``seq`` until it may be seen to be complete.

        Every second one is on time: it overtakes those before it.
        """
        draw = self._draw("landing", seq)
        return draw if draw > self.max_ms / 2000 else 0.0

    def before_firing(self, number: int) -> float:
        """Return for how many seconds future ``number`` of a step is held back: who waits for it loses only time.

        A future lands by itself, so one that nobody waits for would be in time by chance.
        """
        return FUTURES * self.max_ms / 1000 if number % 8 == 0 else 0.0

    def _draw(self, what: str, seq: int) -> float:
        return random.Random(f"{self.seed}/{what}/{self.rank}/{seq}").random() * self.max_ms / 1000
