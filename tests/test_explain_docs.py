"""``lockstep explain`` knows every name that a report uses, and the pages in docs/ are what it knows."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.conftest import ROOT
from tests.kill_matrix.population import specimens
from verifier import catalogue
from verifier.errors import UnknownName
from verifier.explain import explain, main
from verifier.fault import load
from verifier.judge import causes
from verifier.pages import PAGES, readers


@pytest.mark.parametrize("name", PAGES)
def test_pages_are_up_to_date(name):
    written = (ROOT / "docs" / name).read_text()
    assert written == PAGES[name](), f"out of date: python -m verifier.explain --write docs/{name}"


def test_every_name_has_a_page():
    for name in (*catalogue.check_names(), *catalogue.FAULTS.names(), *causes.causes(), *catalogue.SITUATIONS.names()):
        assert name in explain(name)
    with pytest.raises(UnknownName, match=r"Did you mean 'missing_average'\? All names: lockstep list checks"):
        explain("mising_average")


def test_a_check():
    text = explain("ls601")
    assert text.startswith("LS601 liveness\n")
    for part in ("Claim:", "Remedy:", "Causes: ", "deadlock", "Situations that it reads: "):
        assert part in text


def test_a_cause():
    text = explain("missing_average")
    assert "Means: every element is <world size> times what it should be" in text
    assert "Mend it: divide by the world size" in text
    assert "Named by: LS201" in text
    assert "Planted by fault: sum_instead_of_mean" in text


def test_a_fault_and_a_cause_of_one_name():
    text = explain("read_before_wait")
    assert text.startswith("fault read_before_wait")
    assert "\ncause read_before_wait" in text


def test_a_situation():
    text = explain("unused")
    assert "Profile: quick" in text
    assert "unused_parameters" in text
    assert "Read by: " in text


def test_every_cause_says_what_it_means_and_how_to_mend_it():
    for cause in causes.causes().values():
        assert cause.named_by, cause
        assert cause.explanations, cause
        assert cause.hints, cause
    assert {
        "deadlock",
        "collectives_differ",
        "missing_gradient",
        "stray_gradient",
        "update_differs",
        "no_sync_not_restored",
        "resumed_differently",
    } <= set(causes.causes())


def test_every_file_that_states_a_cause_says_for_which_check():
    for path in Path(causes.__file__).parent.glob("*.py"):
        code, stated = causes.stated_in(path)
        assert code or not stated, f"{path.name} states {stated[0][0]} and has no EXPLAINS"


def test_every_cause_that_a_specimen_names_has_a_page():
    named = {cause for specimen in specimens() for cause in specimen.causes}
    assert named <= set(causes.causes())


@pytest.mark.parametrize("name", catalogue.FAULTS.names())
def test_faults_are_read_as_they_are(name):
    fault, text = load(name), causes.faults()[name]
    assert (set(text.trips), text.cause, text.applies_to) == (fault.trips, fault.cause, fault.applies_to)
    assert text.cause in causes.causes()


def test_every_situation_is_read_by_some_check():
    for name in catalogue.SITUATIONS.names():
        assert readers(name)


def test_explaining_needs_no_torch():
    code = "import sys; from verifier.explain import explain; explain('LS201'); sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0


def test_wrong_usage(capsys):
    assert main(["--write", "elsewhere.md"]) == 2
    assert "usage" in capsys.readouterr().err
