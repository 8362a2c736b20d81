"""Reports are well-formed and inert, whatever a strategy is called, prints or raises."""

from __future__ import annotations

import json
from html.parser import HTMLParser
from xml.etree import ElementTree

import pytest

from verifier.report import FORMATS, render
from verifier.report.build import _tried, tells_most
from verifier.report.model import RankOutcome, Repeat, Report, ScenarioResult
from verifier.verdict import DISCLAIMED, UNCLAIMED, CheckResult, Failure

NASTY = "</pre><script>alert(1)</script> [bold]{{ 7*7 }} | `x` \x00\x1b[31m \u2028 é ☃"


@pytest.fixture
def report():
    failure = Failure(
        scenario=NASTY, step=0, rank=1, parameter=NASTY, index=[3, 1], expected="1", observed="2", explanation=NASTY
    )
    return Report(
        verdict="fail",
        summary=NASTY,
        strategy={"as_typed": NASTY},
        request={"world_size": 2, "profile": "quick", "seed": 0, "fault": None},
        environment={"torch": "2", "backend": "gloo", "device": "cpu", "python": "3", "lockstep": "0"},
        scenarios=[
            ScenarioResult(
                name="plain",
                workload="exact",
                world_size=2,
                num_steps=12,
                num_micro_batches=1,
                complete=False,
                seconds=0.1,
                ranks=[RankOutcome(rank=0, status="raised", detail=NASTY, stack=NASTY, output=NASTY)],
                losses=[float(i) for i in range(12)],
                timeline=[
                    {"rank": 0, "seq": 0, "op": NASTY, "phase": "backward", "start_ms": 0.0, "end_ms": 1.0},
                ],
            )
        ],
        checks=[
            CheckResult(code="LS201", name="g", verdict="fail", comparisons=2, failed=9, failures=[failure]),
            CheckResult(code="LS101", name="w", verdict="unknown", why=NASTY),
            CheckResult(code="LS001", name="i", verdict="unknown", claimed=False, why="not said"),
        ],
        problems=[NASTY],
        communication={"calls": 1, "bytes": 2, "by_op": {}},
        timings={"observer_s": 0.0, "judging_s": 0.0, "total_s": None},
        repeat=Repeat(command="lockstep verify x"),
    )


class Tags(HTMLParser):
    def __init__(self, text):
        super().__init__()
        self.seen = []
        self.feed(text)

    def handle_starttag(self, tag, attributes):
        self.seen.append((tag, dict(attributes)))


@pytest.mark.parametrize("format", FORMATS)
def test_every_format_renders_anything(report, format):
    assert "LS201" in render(report, format)


def test_html_is_inert_and_self_contained(report):
    text = render(report, "html")
    tags = Tags(text).seen
    assert "script" not in {tag for tag, _ in tags}
    assert all(not value.startswith("http") for _, attributes in tags for value in attributes.values() if value)
    assert "{{" not in text.replace("{{ 7*7 }}", "")
    assert text.count("<svg") == 2


def test_junit_and_json_parse(report):
    root = ElementTree.fromstring(render(report, "junit"))
    (suite,) = root
    assert (suite.get("failures"), suite.get("errors"), suite.get("skipped")) == ("1", "1", "1")
    document = json.loads(render(report, "json"))
    assert document["schema"] == 1
    assert Report.model_validate(document) == report


def test_markdown_tables_keep_their_columns(report):
    rows = [line for line in render(report, "markdown").splitlines() if line.startswith("| LS")]
    assert {row.replace("\\|", "").count("|") for row in rows} <= {5, 6}


def test_plain_text_has_no_escape_codes(report):
    assert "\x1b[" not in render(report, "text").replace(NASTY, "").replace("\x1b[31m", "")


@pytest.mark.parametrize("format", ["text", "markdown", "html"])
def test_what_was_left_out_is_told_with_its_reason(report, format):
    reasons = [UNCLAIMED + "join", DISCLAIMED + "resume", UNCLAIMED + "holes", "it has <no> no_sync()"]
    (plain,) = report.scenarios
    report.scenarios = [
        plain.model_copy(update={"name": f"number_{place}", "not_claimed": reason, "complete": True})
        for place, reason in enumerate(reasons)
    ]
    text = render(report, format)
    assert "Left out: it has &lt;no&gt; no_sync()" in text or "number_3: left out: it has " in text
    if format != "html":  # HTML shows each reason with its scenario
        assert f"number_0, number_2: left out: {UNCLAIMED}join, holes\n" in text


def test_unknown_format(report):
    with pytest.raises(ValueError, match="Did you mean 'json'"):
        render(report, "jsn")


def test_scenarios_are_told_of_failures_that_are_not_shown():
    """More scenarios fail than are shown, because their failures may have another cause."""
    shown = [Failure(scenario="cycle", explanation="one")]
    check = CheckResult(
        code="LS202", name="n", verdict="fail", failed=3, failures=shown, failed_in=["cycle", "schedule"]
    )
    assert check.elsewhere == ["schedule"]


def test_what_is_merely_wasted_does_not_lead():
    """If numbers are wrong and too much is reduced, the waste is never shown as the reason."""
    wrong = Failure(scenario="resume", cause="resumed_differently", confidence=0.5, explanation="wrong")
    waste = Failure(scenario="oddities", cause="reduced_too_much", confidence=0.9, explanation="waste")
    nameless = Failure(scenario="plain", explanation="nameless")
    assert max([nameless, waste, wrong], key=tells_most) is wrong
    assert max([nameless, waste], key=tells_most) is nameless


def test_a_reason_is_told_once(report):
    """Several checks are unknown for the same reason, in different scenarios."""
    alone = CheckResult(code="LS301", name="o", verdict="unknown", why="plain: something else")
    report.verdict, report.problems = "unknown", []
    report.checks = [
        CheckResult(code="LS001", name="i", verdict="unknown", why="plain, realistic: the model rests"),
        CheckResult(code="LS101", name="w", verdict="unknown", why="plain: the model rests"),
        alone,
    ]
    text = render(report, "text")
    assert text.count("the model rests") == 1
    assert "The same: LS101" in text
    assert "LS301 o: plain: something else" in text
    report.verdict = "fail"  # what failed says more
    assert "LS001, LS101 unknown: the model rests\nLS301 unknown: something else\n" in render(report, "text")


def test_what_differs_in_numbers_alone_is_told_once(report):
    said = {"a": "sizes 168 vs. 2", "b": "sizes 330 vs. 2", "c": "not in float16", "d": "not in float64"}
    said |= {"e": "no hook at 0x7f12ab", "f": "no hook at 0x7f9900"}
    report.scenarios = [
        report.scenarios[0].model_copy(update={"name": name, "refused": refused}) for name, refused in said.items()
    ]
    text = render(report, "text")
    assert "a, b: refused, as it may: sizes 168 vs. 2" in text
    assert "e, f: refused, as it may: no hook at 0x7f12ab" in text
    assert "c: refused, as it may: not in float16" in text
    assert "d: refused, as it may: not in float64" in text, "a number in a word is a part of it"


def test_what_nobody_says_on_purpose_is_called_a_crash(report):
    """A crash is no failure where nothing is claimed, but a pass states how often it happened."""
    said = {"a": "NotImplementedError: one dtype, please", "b": "AttributeError: 'Model' object has no attribute 'x'"}
    report.scenarios = [
        report.scenarios[0].model_copy(update={"name": name, "refused": refused}) for name, refused in said.items()
    ]
    for text in (render(report, "text"), render(report, "html").lower()):
        assert "refused, as it may: notimplementederror: one dtype" in text.lower()
        assert "crashed, where it claims nothing: attributeerror" in text.lower()
    assert _tried(report) == "0 of 2 scenarios; the others: refused or left out, and in 1 of them it crashed"
