"""The report for CI systems: one JUnit test case per check. Unknown is an error, not claimed is skipped."""

from __future__ import annotations

import re
from xml.etree import ElementTree

from verifier.report.model import Report
from verifier.verdict import CheckResult

_NOT_XML = re.compile("[^\t\n\r\u0020-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


def render(report: Report) -> str:
    cases = [_case(report, check) for check in report.checks]
    suite = ElementTree.Element(
        "testsuite",
        name=f"lockstep {_clean(report.strategy.get('as_typed', '?'))}",
        tests=str(len(cases)),
        failures=str(sum(case.find("failure") is not None for case in cases)),
        errors=str(sum(case.find("error") is not None for case in cases)),
        skipped=str(sum(case.find("skipped") is not None for case in cases)),
        time=str(report.timings.get("total_s") or 0),
    )
    suite.extend(cases)
    root = ElementTree.Element("testsuites")
    root.append(suite)
    ElementTree.indent(root)
    return ElementTree.tostring(root, encoding="unicode", xml_declaration=True) + "\n"


def _case(report: Report, check: CheckResult) -> ElementTree.Element:
    name = _clean(report.strategy["as_typed"])
    case = ElementTree.Element("testcase", classname=f"lockstep.{name}", name=f"{check.code} {check.name}")
    if not check.claimed:
        ElementTree.SubElement(case, "skipped", message=_clean(check.why or "not claimed"))
    elif check.verdict == "fail":
        first = check.failures[0]
        node = ElementTree.SubElement(
            case, "failure", type=first.cause or "unexplained", message=_clean(first.explanation)
        )
        node.text = _clean("\n".join(f.model_dump_json(exclude_none=True) for f in check.failures))
    elif check.verdict == "unknown":
        node = ElementTree.SubElement(case, "error", message=_clean((check.why or "unknown").splitlines()[0]))
        node.text = _clean("\n".join([check.why or "", *report.problems]))
    return case


def _clean(text: str) -> str:
    """``text`` with "?" for the control characters that XML cannot carry."""
    return _NOT_XML.sub("?", text)
