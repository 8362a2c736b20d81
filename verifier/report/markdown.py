"""The report for a pull request or a CI summary: GitHub-flavoured Markdown."""

from __future__ import annotations

from verifier.report.model import Report

SIGNS = {"pass": "✅", "fail": "❌", "unknown": "❔"}


def render(report: Report) -> str:
    lines = [f"### {SIGNS[report.verdict]} Lockstep: {report.verdict}", "", _cell(report.summary), ""]
    lines += ["| check | verdict | compared | failed |", "|---|---|---:|---:|"]
    for check in report.checks:
        verdict = f"{SIGNS[check.verdict]} {check.shown}" if check.claimed else check.shown
        lines.append(f"| {check.code} {check.name} | {verdict} | {check.comparisons} | {check.failed} |")
    failures = [(check, f) for check in report.checks for f in check.failures]
    if failures:
        lines += ["", "| check | where | cause | expected | observed |", "|---|---|---|---|---|"]
    for check, f in failures:
        where = ", ".join(
            str(part) for part in (f.scenario, f"step {f.step}", f"rank {f.rank}", f.parameter) if part is not None
        )
        lines.append(f"| {check.code} | {_cell(where)} | {f.cause or ''} | {_cell(f.expected)} | {_cell(f.observed)} |")
    lines += [f"\n{_cell(names)}: left out: {_cell(reason)}" for names, reason in report.left_out()]
    for problem in report.problems:
        lines += ["", f"- {_cell(problem)}"]
    if report.repeat is not None:
        lines += ["", "Repeat it:", "", "```", report.repeat.command, "```"]
    return "\n".join(lines) + "\n"


def _cell(text: str | None) -> str:
    """Text that cannot leave its table cell or turn into markup."""
    plain = " ".join((text or "").split()).replace("|", "\\|")
    return plain.replace("<", "&lt;").replace(">", "&gt;")
