"""Published bugs, rebuilt: each is caught by exactly the checks it names. Honest controls: none trips anything."""

from __future__ import annotations

import importlib
from pathlib import Path

import pytest

TESTS = Path(__file__).parent.parent
SPECIMENS = sorted(p.stem for p in (TESTS / "specimens").glob("[a-z]*.py"))
CONTROLS = sorted(p.stem for p in (TESTS / "controls").glob("[a-z]*.py"))


@pytest.mark.parametrize("name", SPECIMENS)
def test_a_specimen_is_caught_by_exactly_the_checks_it_names(lockstep, name):
    specimen = importlib.import_module(f"tests.specimens.{name}")
    settings = {"world_size": 3, "profile": "standard"} | getattr(specimen, "SETTINGS", {})
    report = lockstep.verify(str(TESTS / "specimens" / f"{name}.py"), **settings)
    assert {check.code for check in report.checks if check.verdict == "fail"} == specimen.TRIPS
    unknown = {check.code for check in report.checks if check.verdict == "unknown"}
    assert not unknown or "LS601" in specimen.TRIPS  # where ranks hang, the others have nothing to compare
    assert specimen.CAUSE in {failure.cause for check in report.checks for failure in check.failures}


@pytest.mark.parametrize("name", SPECIMENS)
def test_a_specimen_cites_its_source(name):
    text = importlib.import_module(f"tests.specimens.{name}").__doc__
    assert "#" in text or "class of mistake" in text


@pytest.mark.parametrize("world_size", [2, 3])
@pytest.mark.parametrize("name", CONTROLS)
def test_an_honest_strategy_trips_nothing(lockstep, name, world_size):
    control = importlib.import_module(f"tests.controls.{name}")
    report = lockstep.verify(str(TESTS / "controls" / f"{name}.py"), world_size=world_size, profile="standard")
    report.assert_pass()
    assert {scenario.driver for scenario in report.scenarios} == {control.DRIVER}
