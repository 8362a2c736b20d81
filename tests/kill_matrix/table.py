"""The matrix as a page of the documentation. Pure: from trials to Markdown."""

from __future__ import annotations

from collections.abc import Sequence

from tests.kill_matrix.population import Subject
from tests.kill_matrix.running import Trial

MARKS = {"pass": "", "fail": "**x**", "unknown": "?", "not claimed": "-"}
HEAD = """# The kill matrix

Written by `python -m tests.kill_matrix --write docs/kill-matrix.md`; kept current by
`tests/verifier/test_kill_matrix.py`.

Every fault (a mistake planted in one of our strategies) and every specimen (a published bug, rebuilt) is run against
every check, in profile `standard` on {world_size} ranks, and must be caught by exactly the checks that it names. Every
control is right and must trip nothing. **x** fails, ? unknown (where an earlier failure leaves nothing to compare, or
ranks did not come to their end), - not claimed or refused, empty: passes.

Repeated with other seeds: [the rounds that were seen whole](repetitions.md).

What the rows expect was corrected where a report showed the file to be wrong, so these counts hold a state, and are no
measurement of how often a cause is named rightly.

"""


def page(trials: Sequence[Trial], absent: Sequence[Subject] = ()) -> str:
    faulty = [t for t in trials if t.subject.faulty]
    honest = [t for t in trials if not t.subject.faulty]
    parts = [HEAD.format(world_size=trials[0].world_size), summary(trials), ""]
    parts += [f"## Faults and specimens ({len(faulty)})", "", *_rows(faulty, with_source=True), ""]
    parts += [f"## Honest controls ({len(honest)})", "", *_rows(honest, with_source=False), ""]
    if absent:
        names = ", ".join(f"{subject.kind} {subject.name}" for subject in absent)
        parts += [f"## Not in this table yet ({len(absent)})", "", f"{names}.", ""]
    return "\n".join(parts)


def summary(trials: Sequence[Trial]) -> str:
    faulty = [t for t in trials if t.subject.faulty]
    honest = [t for t in trials if not t.subject.faulty]
    caught = sum(bool(t.failed) for t in faulty)
    exact = sum(t.as_expected for t in faulty)
    alarms = sum(not t.as_expected for t in honest)
    sure, right = confidence(trials)
    lines = [
        f"- caught: {caught} of {len(faulty)}; by exactly the checks named: {exact}",
        f"- false alarms: {alarms} of {len(honest)} controls",
        f"- cause named with a confidence of 0.9 or more: {sure} times, of which {right} right",
    ]
    return "\n".join(lines)


def confidence(trials: Sequence[Trial]) -> tuple[int, int]:
    """How often the leading cause is named with confidence >= 0.9, and how often it is then the one expected."""
    sure = [t for t in trials if t.subject.faulty and t.leading is not None and t.leading.confidence >= 0.9]
    right = [t for t in sure if t.leading is not None and t.leading.cause in t.subject.causes]
    return len(sure), len(right)


def _rows(trials: Sequence[Trial], *, with_source: bool) -> list[str]:
    codes = list(trials[0].cells) if trials else []
    columns = ["", *codes, *(["cause", "seen in"] if with_source else [])]
    rows = ["| " + " | ".join(columns) + " |", "|" + "---|" * len(columns)]
    for trial in trials:
        cells = [MARKS[trial.cells[code]] for code in codes]
        more = [", ".join(sorted(trial.subject.causes)), _links(trial.subject)] if with_source else []
        rows.append("| " + " | ".join([f"`{trial.subject.name}`", *cells, *more]) + " |")
    return rows


def _links(subject: Subject) -> str:
    def link(thread: str) -> str:
        repository, _, number = thread.partition("#")
        return f"[{thread}](https://github.com/{repository}/issues/{number})"

    return ", ".join(map(link, subject.sources)) or "class of mistake"
