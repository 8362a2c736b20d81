"""The pages of docs/ are what their commands write, and name what there is."""

from __future__ import annotations

import re
from dataclasses import fields

from benchmarks import communication
from ddp_core.driver import Driver
from ddp_core.recognition import styles
from ddp_core.strategy import EXPECTED_CLAIMS, EXTRA_CLAIMS, Contract
from service import configuration
from tests.conftest import ROOT
from verifier import catalogue


def test_calls_and_bytes():
    assert communication.page() == (ROOT / "docs" / "communication.md").read_text()


def test_every_strategy_is_described():
    text = (ROOT / "docs" / "strategies.md").read_text()
    described = {name for row in re.findall(r"^\| (`.*?) \|", text, re.M) for name in re.findall(r"`(\w+)`", row)}
    assert set(catalogue.STRATEGIES.names()) <= described


def test_every_way_to_be_driven_is_described():
    text = (ROOT / "docs" / "driving.md").read_text()
    assert set(re.findall(r"^\| (\w+) \|", text, re.M)) >= set(styles())
    methods = {name for name, value in vars(Driver).items() if callable(value) and not name.startswith("_")}
    for name in {*methods - {"fits", "forward"}, "can_clip", *(f.name for f in fields(Contract))}:
        assert re.search(rf"`{name}\b", text), name
    for name, meaning in (EXPECTED_CLAIMS | EXTRA_CLAIMS).items():
        assert f"- `{name}`: {meaning}\n" in text


def test_links_lead_somewhere():
    for page in [ROOT / "README.md", *(ROOT / "docs").glob("*.md")]:
        for target in re.findall(r"\]\(([^)#:]+)\)", page.read_text()):
            assert (page.parent / target).exists(), (page.name, target)


def test_configuration():
    text = (ROOT / "docs" / "configuration.md").read_text()
    assert text == configuration.page()
    read = set()
    for package in ("ddp_core", "verifier", "service"):
        for file in (ROOT / package).rglob("*.py"):
            read |= set(re.findall(r"\bLOCKSTEP_[A-Z_]+[A-Z]\b", file.read_text()))
    missing = {name for name in read if f"`{name}`" not in text} - configuration.INTERNAL
    assert not missing


def test_the_lab_page_says_what_its_template_says():
    head = (ROOT / "benchmarks" / "performance_lab.md").read_text()
    page = (ROOT / "docs" / "performance-lab.md").read_text()
    for line in head.splitlines():
        assert "{" in line or line in page, line
