"""What is derived from all recordings of a run before any check reads one of them.

Special here: what a check is handed never changes. Each stage returns new recordings that say more in ``derived``, and
reads only what the stages before it derived.
"""

from __future__ import annotations

from collections.abc import Iterable

from verifier.judge.own_rule import settled, shown_by_others
from verifier.judge.uninterrupted import held_to_controls
from verifier.recording import Recording


def with_derived(recordings: Iterable[Recording]) -> list[Recording]:
    """All ``recordings`` of one run, in their order, with everything in ``Recording.derived``."""
    return held_to_controls(shown_by_others([settled(recording) for recording in recordings]))
