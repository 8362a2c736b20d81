"""Reports side by side: only changes are shown, and an absent result does not count as unknown."""

from __future__ import annotations

import pytest
from rich.console import Console

from verifier.report.across import as_table, compare
from verifier.report.model import CheckResult, Failure, Report, ScenarioResult


def check(code: str, verdict: str, **more: object) -> CheckResult:
    return CheckResult.model_validate({"code": code, "name": f"name_{code}", "verdict": verdict, **more})


def report(verdict: str, checks: list[CheckResult], *, torch: str = "2.13.0", seconds: float = 1.0) -> Report:
    scenario = ScenarioResult(
        name="plain", workload="exact", world_size=2, num_steps=3, num_micro_batches=1, complete=True, seconds=seconds
    )
    return Report(
        verdict=verdict,
        strategy={},
        request={"world_size": 2, "profile": "quick"},
        environment={"torch": torch, "backend": "gloo"},
        checks=checks,
        scenarios=[scenario],
        timings={"total_s": seconds * 2, "judging_s": 0.1},
    )


FAILURE = Failure(scenario="plain", cause="not_synchronised", explanation="it is not")


def test_what_changed() -> None:
    before = report("pass", [check("LS101", "pass"), check("LS201", "pass"), check("LS203", "pass", claimed=False)])
    after = report(
        "fail",
        [check("LS101", "pass"), check("LS201", "fail", failed=1, failures=[FAILURE]), check("LS801", "unknown")],
        torch="2.14.0",
        seconds=3.0,
    )
    found = compare([before, after], ["a", "b"])
    assert found.changed
    assert {each.code: each.verdicts for each in found.checks} == {
        "LS101": ["pass", "pass"],
        "LS201": ["pass", "fail"],
        "LS203": ["not claimed", None],
        "LS801": [None, "unknown"],
    }
    assert [each.code for each in found.checks if each.changed] == ["LS201", "LS203", "LS801"]
    assert found.checks[1].causes == [None, "not_synchronised"]
    assert [(field.name, field.values) for field in found.differences] == [("environment.torch", ["2.13.0", "2.14.0"])]
    assert [(row.name, row.seconds) for row in found.timings] == [("total", [2.0, 6.0]), ("plain", [1.0, 3.0])]
    console = Console(width=120, record=True, file=open("/dev/null", "w"))  # noqa: PTH123, SIM115
    console.print(as_table(found))
    text = console.export_text()
    assert "fail (not_synchronised)" in text
    assert "LS101" not in text
    assert "environment.torch" in text


def test_nothing_changed() -> None:
    same = report("pass", [check("LS101", "pass")])
    found = compare([same, same, same], ["a", "b", "c"])
    assert not found.changed
    assert found.differences == []


@pytest.mark.parametrize(("reports", "names"), [([], []), (["a"], ["a"]), (["a", "b"], ["a"])])
def test_too_few(reports: list[str], names: list[str]) -> None:
    with pytest.raises(ValueError, match="two reports or more"):
        compare([report("pass", []) for _ in reports], names)
