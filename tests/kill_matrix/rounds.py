"""Repetitions as a page: which rounds were seen whole, on which state of the code, and what was not as expected.

Special here: rounds take longer than anybody waits, so they are added up over days. Each row says of what code it is (a
digest of what is run and judged), and a round is added once it is whole. A docstring that is mended changes no verdict,
and no digest; of the rows' own files every byte counts, because ``verifier/texts.py`` reads those as text.
"""

from __future__ import annotations

import ast
import hashlib
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path

from tests.kill_matrix.running import Trial
from tests.kill_matrix.table import confidence

ROOT = Path(__file__).parent.parent.parent
RUN = ("ddp_core", "verifier")
MAY_HAVE_DOCSTRINGS = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
READ_AS_TEXT = ("tests/controls", "tests/specimens")
HEAD = """# Repetitions of the kill matrix

Every row of [the kill matrix](kill-matrix.md) with other seeds, in profile `standard`, every second round with
collectives that finish late and overtake each other. A line is added for each round that was seen whole:

    python -m tests.kill_matrix --repeat 20 --world-size 2 --jobs 3 --keep FOLDER --rounds docs/repetitions.md

*Code* is a digest of `ddp_core` and `verifier` but for comments and docstrings, and of the rows' own files to the byte:
lines with the same one are of the same code.

| seed | world size | delays | verifications | as expected | false alarms | causes right, of those sure | code |
|---|---|---|---|---|---|---|---|
"""


def code_digest(root: Path = ROOT) -> str:
    """Of all Python files below ``root`` that are run or judge, in order of their names."""
    found = hashlib.sha256()
    for path in sorted(path for folder in (*RUN, *READ_AS_TEXT) for path in (root / folder).rglob("*.py")):
        name = str(path.relative_to(root))
        counts = path.read_bytes() if name.startswith(READ_AS_TEXT) else without_words(path.read_bytes())
        found.update(name.encode() + b"\0" + counts + b"\0")
    return found.hexdigest()[:12]


def without_words(source: bytes) -> bytes:
    """``source`` without comments and docstrings, and laid out alike."""
    tree = ast.parse(source)
    for node in ast.walk(tree):
        if isinstance(node, MAY_HAVE_DOCSTRINGS) and ast.get_docstring(node, clean=False) is not None:
            node.body[0] = ast.Pass()
    return ast.unparse(tree).encode()


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
