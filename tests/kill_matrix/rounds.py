"""Repetitions as a page: which rounds were seen whole, on which state of the code, and what was not as expected.

Special here: rounds take longer than anybody waits, so they are added up over days. Each row says of what code it is (a
digest of what is run and judged), and a round is added once it is whole.
"""

from __future__ import annotations

import hashlib
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path

from tests.kill_matrix.running import Trial
from tests.kill_matrix.table import confidence

ROOT = Path(__file__).parent.parent.parent
RUN = ("ddp_core", "verifier", "tests/controls", "tests/specimens")
HEAD = """# Repetitions of the kill matrix

Every row of [the kill matrix](kill-matrix.md) with other seeds, in profile `standard`, every second round with
collectives that finish late and overtake each other. A line is added for each round that was seen whole:

    python -m tests.kill_matrix --repeat 20 --world-size 2 --jobs 3 --keep FOLDER --rounds docs/repetitions.md

*Code* is a digest of `ddp_core`, `verifier` and the rows' own files: lines with the same one are of the same code.

| seed | world size | delays | verifications | as expected | false alarms | causes right, of those sure | code |
|---|---|---|---|---|---|---|---|
"""


def code_digest() -> str:
    """Of all Python files that are run or judge, in order of their names."""
    found = hashlib.sha256()
    for path in sorted(path for folder in RUN for path in (ROOT / folder).rglob("*.py")):
        found.update(str(path.relative_to(ROOT)).encode() + b"\0" + path.read_bytes() + b"\0")
    return found.hexdigest()[:12]


def with_rounds(page: str, trials: Sequence[Trial], num_subjects: int, code: str) -> str:
    """``page``, or a new one where it is empty, with a line for each round among ``trials`` that is whole."""
    rounds = defaultdict[int, list[Trial]](list)
    for trial in trials:
        rounds[trial.seed].append(trial)
    lines = [_line(seed, of, code) for seed, of in sorted(rounds.items()) if len(of) == num_subjects]
    page = page or HEAD
    return page + "".join(line for line in lines if line not in page)


def _line(seed: int, trials: Sequence[Trial], code: str) -> str:
    sizes = sorted({trial.world_size for trial in trials})
    delay = f"to {trials[0].delay_ms:g} ms" if trials[0].delay_ms else "none"
    alarms = sum(not trial.as_expected for trial in trials if not trial.subject.faulty)
    sure, right = confidence(trials)
    told = (seed, sizes[0], delay, len(trials), sum(trial.as_expected for trial in trials), alarms, f"{right}, {sure}")
    return "| " + " | ".join(map(str, told)) + f" | {code} |\n"
