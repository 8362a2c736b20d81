"""The report for a terminal: a table of checks, then what failed, where, why, and what to do about it."""

from __future__ import annotations

import io
import re
from collections.abc import Iterable, Iterator
from typing import Any

from rich.console import Console, Group, RenderableType
from rich.markup import escape
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from verifier.report.model import RankOutcome, Report, ScenarioResult
from verifier.verdict import CheckResult, Failure

COLOURS = {"pass": "green", "fail": "bold red", "unknown": "yellow"}
WIDTH = 110


def render(report: Report) -> str:
    """The report as plain text, no colours, at most WIDTH columns."""
    out = io.StringIO()
    Console(file=out, width=WIDTH, no_color=True, highlight=False, legacy_windows=False).print(renderable(report))
    return "\n".join(line.rstrip() for line in out.getvalue().splitlines()) + "\n"


def renderable(report: Report) -> RenderableType:
    """The report for a terminal with colours."""
    parts: list[RenderableType] = [_headline(report), "", _table(report.checks)]
    for check in report.checks:
        if check.verdict == "fail":
            parts += ["", *_failed_check(check)]
    parts += _unknown(report)
    parts += _own_rule(report) + _left_out(report) + _refused(report) + _incomplete(report)
    for scenario in report.scenarios:
        parts += _figures(scenario)
    parts += _observer(report)
    parts += ["", Text.assemble("Verdict: ", (report.verdict, COLOURS[report.verdict]))]
    parts.append(Text(report.summary))
    if report.verdict != "pass" and report.repeat is not None:
        parts.append(Text(f"Repeat it: {report.repeat.command}"))
    return Group(*parts)


def _headline(report: Report) -> Text:
    request, environment = report.request, report.environment
    faulty = f" with fault {request['fault']}" if request.get("fault") else ""
    drivers = ", ".join(sorted({s.driver for s in report.scenarios if s.driver})) or "none found"
    return Text(
        f"{report.strategy.get('as_typed', '?')}{faulty}: world size {request['world_size']}, "
        f"profile {request['profile']}, driver {drivers}, torch {environment.get('torch')}, "
        f"{environment.get('backend')} on {environment.get('device')}"
    )


def _table(checks: list[CheckResult]) -> Table:
    table = Table(box=None, pad_edge=False, padding=(0, 3, 0, 0))
    for heading, justify in (("check", "left"), ("", "left"), ("verdict", "left"), ("compared", "right")):
        table.add_column(heading, justify=justify, no_wrap=True)  # type: ignore[arg-type]
    table.add_column("failed", justify="right", no_wrap=True)
    table.add_column("margin", justify="right", no_wrap=True)
    for check in checks:
        verdict = Text(check.shown, style=COLOURS[check.verdict] if check.claimed else "")
        margin = "" if check.margin is None else f"{check.margin:.2g}"
        table.add_row(check.code, check.name, verdict, str(check.comparisons), str(check.failed), margin)
    return table


def _failed_check(check: CheckResult) -> list[RenderableType]:
    parts: list[RenderableType] = [Text(f"{check.code} {check.name}: {check.failed} of {check.comparisons}", "bold")]
    by_cause: dict[str | None, list[Failure]] = {}
    for failure in check.failures:
        by_cause.setdefault(failure.cause, []).append(failure)
    for cause, failures in by_cause.items():
        first, scenarios = failures[0], list(dict.fromkeys(failure.scenario for failure in failures))
        named = f"{cause} (confidence {first.confidence:g})" if cause else "no known pattern"
        scenario = f"scenario{'s' if len(scenarios) > 1 else ''} {', '.join(scenarios)}"
        body = [Text(f"cause: {named}, in {scenario}"), Text(_place(first)), Text(f"why: {first.explanation}")]
        if first.hint:
            body.append(Text(f"fix: {first.hint}"))
        if len(failures) > 1:
            body.append(Text("also: " + "; ".join(_short(f) for f in failures[1:4]), overflow="fold"))
        parts.append(Padding(Group(*body), (0, 0, 0, 2)))
    if check.failed > len(check.failures):
        also = f", also in {', '.join(check.elsewhere)}" if check.elsewhere else ""
        parts.append(f"  and {check.failed - len(check.failures)} more{also}")
    return parts


def _unknown(report: Report) -> list[RenderableType]:
    """Why checks are unknown, unless problems say more: each reason once, as its first check has it; in a line each
    where other checks fail, which say more.
    """
    if report.problems:
        return []
    by_reason: dict[str, list[CheckResult]] = {}
    for check in report.checks:
        if check.verdict == "unknown" and check.claimed:
            scenarios, colon, reason = (check.why or "unknown").partition(": ")
            by_reason.setdefault(reason if colon else scenarios, []).append(check)
    parts: list[RenderableType] = []
    if report.verdict == "fail":
        lines = [_in_a_line(reason, checks) for reason, checks in by_reason.items()]
        return [Text(), *lines] if lines else []
    for first, *others in by_reason.values():
        parts += ["", f"{first.code} {first.name}: {escape(first.why or 'unknown')}"]
        parts += [f"The same: {', '.join(check.code for check in others)}"] if others else []
    return parts


def _in_a_line(reason: str, checks: list[CheckResult]) -> Text:
    return Text(f"{', '.join(check.code for check in checks)} unknown: {reason.splitlines()[0].partition('; ')[0]}")


def _place(failure: Failure) -> str:
    where = _short(failure)
    if failure.expected is not None:
        return f"at {where}: expected {failure.expected}, observed {failure.observed}"
    return f"at {where}"


def _short(failure: Failure) -> str:
    parts = [f"step {failure.step}"] if failure.step is not None else []
    parts += [f"rank {failure.rank}"] if failure.rank is not None else []
    if failure.bucket is not None:
        parts.append(f"collective {failure.bucket}")
    if failure.parameter is not None:
        parts.append(failure.parameter + (str(failure.index) if failure.index else ""))
    return ", ".join(parts)


def _own_rule(report: Report) -> list[RenderableType]:
    rules = sorted({scenario.own_rule for scenario in report.scenarios if scenario.own_rule is not None})
    if not rules:
        return []
    told = f"\nupdate rule: the strategy's own ({', '.join(rules)}), held to what it comes to on one rank"
    return [Text(f"{told} with everybody's samples")]


def _left_out(report: Report) -> list[RenderableType]:
    """The situations that were not tried, and why: a pass says nothing about them."""
    return [Text(f"\n{names}: left out: {reason}") for names, reason in report.left_out()]


def _refused(report: Report) -> list[RenderableType]:
    told = [
        (scenario.name, f"{scenario.how_refused}: {scenario.refused}")
        for scenario in report.scenarios
        if scenario.refused is not None
    ]
    return [Text(f"\n{names}: {words}") for words, names in _folded(told, but_for=r"\b(\d+|0x[0-9a-f]+)\b")]


def _folded(told: Iterable[tuple[str, str]], *, but_for: str | None = None) -> Iterator[tuple[str, str]]:
    """(message, names of its scenarios), each message once; messages that differ only in ``but_for`` count as one."""
    by_message: dict[str, tuple[str, list[str]]] = {}
    for name, message in told:
        alike = message if but_for is None else re.sub(but_for, "", message)
        by_message.setdefault(alike, (message, []))[1].append(name)
    return ((message, ", ".join(names)) for message, names in by_message.values())


def _incomplete(report: Report) -> list[RenderableType]:
    """How unfinished ranks ended: in full for the first scenario, a line for the others."""
    incomplete = [scenario for scenario in report.scenarios if not scenario.complete and scenario.refused is None]
    if not incomplete:
        return []
    parts: list[RenderableType] = []
    alike: dict[tuple[Any, ...], list[RankOutcome]] = {}
    for rank in incomplete[0].ranks:
        alike.setdefault((rank.status, rank.detail, rank.stack, rank.output), []).append(rank)
    for rank, *others in alike.values():
        if rank.status == "completed":
            continue
        ranks = ", ".join(str(r.rank) for r in (rank, *others))
        parts += ["", Text(f"{incomplete[0].name}, rank{'s' if others else ''} {ranks} {rank.status}:", "bold")]
        shown = [rank.detail, rank.stack, rank.output and "it printed:\n" + rank.output.rstrip()[-2000:]]
        parts += [Padding(Text(text.rstrip()), (0, 0, 0, 2)) for text in shown if text]
    later = [problem for problem in report.problems if not problem.startswith(incomplete[0].name + ":")]
    parted = ((name, message) for name, _, message in (problem.partition(": ") for problem in later))
    lines = [f"{names}: {message}" if message else names for message, names in _folded(parted)]
    return [*parts, *([""] if lines else []), *map(Text, lines)]


def _figures(scenario: ScenarioResult) -> list[RenderableType]:
    if not scenario.evaluation:
        return []
    figures = ", ".join(f"{name.replace('_', ' ')} {value:.4g}" for name, value in scenario.evaluation.items())
    losses = f"loss {scenario.losses[0]:.4g} -> {scenario.losses[-1]:.4g} in {scenario.num_steps} steps, "
    return ["", Text(f"{scenario.name}: {losses if scenario.losses else ''}{figures}")]


def _observer(report: Report) -> list[RenderableType]:
    """The time that the observer took: of each scenario's rank where it took most, added up."""
    calls, spent_s, ranks_s = (report.timings.get(key) or 0 for key in ("observed_calls", "observer_s", "ranks_s"))
    if not calls or not ranks_s:
        return []
    share = f"{spent_s:.3f} s of {ranks_s:.1f} s ({100 * spent_s / ranks_s:.1f} %)"
    return ["", Text(f"observer: {calls} collectives, {share}")]
