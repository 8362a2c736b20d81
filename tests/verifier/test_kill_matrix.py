"""The kill matrix holds: every fault and specimen is caught by exactly the checks it names, no control fails a check.

Special here: it runs the same code as ``python -m tests.kill_matrix``, and checks the page in docs/: its rows and marks
must agree with the files themselves. All rows take an hour, so few are run here: enough mistakes to trip every check
once, and every sixteenth control, on two ranks; all of them, on three, with LOCKSTEP_ALL_ROWS=1 (``make matrix``).
``test_strategies.py`` runs the built-in strategies' rows, on three ranks.
"""

from __future__ import annotations

import os
import re
from dataclasses import replace
from pathlib import Path

import pytest

from tests.kill_matrix.population import Subject, controls, everybody, faults, specimens
from tests.kill_matrix.rounds import with_rounds, without_words
from tests.kill_matrix.running import Trial, keep, try_subject

PAGE = Path(__file__).parent.parent.parent / "docs" / "kill-matrix.md"
FAULTY = [*faults(), *specimens()]
ALL_ROWS = bool(os.environ.get("LOCKSTEP_ALL_ROWS"))
HONEST = [subject for subject in controls() if ALL_ROWS or subject.kind != "strategy"]
STRIDE = 1 if ALL_ROWS else 16


def one_for_each_check(subjects: list[Subject]) -> list[Subject]:
    """A few of ``subjects`` that together trip every check that any of them trips; always the same ones."""
    left, chosen = frozenset[str]().union(*(subject.trips for subject in subjects)), list[Subject]()
    while left:
        chosen.append(max(subjects, key=lambda subject: len(subject.trips & left)))
        left -= chosen[-1].trips
    return chosen


MISTAKES = FAULTY if ALL_ROWS else one_for_each_check(FAULTY)


@pytest.fixture
def tried(lockstep):
    """A function that tries a subject, and stores the result in the folder LOCKSTEP_TRIALS."""

    def run(subject: Subject) -> Trial:
        trial = try_subject(subject, lockstep.launcher, world_size=3 if ALL_ROWS else 2)
        if folder := os.environ.get("LOCKSTEP_TRIALS"):
            keep(trial, Path(folder))
        return trial

    return run


def name(subject: Subject) -> str:
    return f"{subject.kind}-{subject.name}"


@pytest.mark.parametrize("subject", MISTAKES, ids=name)
def test_a_mistake_is_caught_by_exactly_the_checks_it_names(tried, subject):
    trial = tried(subject)
    assert trial.as_expected, trial.complaint()
    assert trial.leading is not None
    if subject.causes:
        assert trial.leading.cause in subject.causes
    else:
        assert trial.leading.confidence < 0.9, "a cause is named, surely and wrongly"


@pytest.mark.parametrize("subject", HONEST[::STRIDE], ids=name)
def test_an_honest_strategy_trips_nothing(tried, subject):
    trial = tried(subject)
    assert trial.as_expected, trial.complaint()
    if subject.driver is not None:
        assert trial.drivers == {subject.driver}


def test_the_population_is_large_enough():
    assert len(FAULTY) >= 60
    assert len(HONEST) >= 25


@pytest.mark.parametrize("subject", specimens(), ids=name)
def test_a_specimen_cites_its_source(subject):
    path = Path(__file__).parent.parent / "specimens" / f"{subject.name}.py"
    assert subject.sources or "class of mistake" in path.read_text().lower()


def test_a_round_is_added_to_its_page_once_it_is_whole():
    everyone = [*faults()[:2], *controls()[:1]]
    tried = [Trial(s, 2, 7, 3.0, dict.fromkeys(s.trips, "fail") or {"LS201": "pass"}, None) for s in everyone]
    page = with_rounds("", tried, 3, "abc")
    assert page.endswith("| 7 | 2 | to 3 ms | 3 | 3 | 0 | 0, 0 | abc |\n")
    assert with_rounds(page, tried, 3, "abc") == page, "it is there already"
    assert with_rounds(page, tried[1:], 3, "abc") == page, "it is not whole"
    wrong = [*tried[:2], replace(tried[2], cells={"LS201": "unknown"})]
    assert with_rounds(page, wrong, 3, "def").endswith("| 7 | 2 | to 3 ms | 3 | 2 | 1 | 0, 0 | def |\n")


def test_a_digest_is_of_what_runs():
    before = without_words(b'"""A."""\n\ndef f():\n    """B."""\n    return 1  # C\n')
    assert before == without_words(b'"""Other."""\n\ndef f():\n    """Words."""\n    return 1\n')
    assert before != without_words(b'"""A."""\n\ndef f():\n    """B."""\n    return 2  # C\n')
    assert without_words(b'x = "a string"') != without_words(b'x = "another"')


def test_the_page_is_current():
    """Rows and marks of docs/kill-matrix.md. If it fails: python -m tests.kill_matrix --write docs/kill-matrix.md."""
    head = next(line for line in PAGE.read_text().splitlines() if "| LS001 |" in line)
    codes = [cell.strip() for cell in head.split("|")[1:-1]]
    marked = {}
    for line in PAGE.read_text().splitlines():
        cells = [cell.strip() for cell in line.split("|")[1:-1]]
        if cells and (found := re.fullmatch(r"`(.+)`", cells[0])):
            marked[found[1]] = {code for code, cell in zip(codes, cells, strict=False) if cell == "**x**"}
    assert marked == {subject.name: subject.trips for subject in everybody()}
