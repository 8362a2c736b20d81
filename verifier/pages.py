"""The pages ``docs/checks.md`` and ``docs/situations.md``, generated from the files that they describe.

Special here: nothing is stated twice. Whether a check reads a situation is asked of the check itself, with the scenario
that the situation makes.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import cache

from verifier import catalogue
from verifier.judge import causes
from verifier.request import Builtin, Request
from verifier.scenario import Scenario
from verifier.situation import PROFILES, Situation

PARTS = ("Claim", "Catches", "Blind to", "Seen in the wild", "Remedy")
_PART = re.compile(rf"^({'|'.join(PARTS)}): ", re.MULTILINE)
_INCIDENT = re.compile(r"\b([\w.-]+/[\w.-]+)#(\d+)")


@cache
def situation(name: str) -> Situation:
    found: Situation = catalogue.SITUATIONS.load(name).SITUATION
    return found


@cache
def _scenario(name: str) -> Scenario:
    request = Request(strategy=Builtin(name="bucketed"), world_size=4)
    return situation(name).scenario(name, name, request, seed=0)


@cache
def readers(name: str) -> list[str]:
    """The codes of the checks that read the situation ``name``."""
    return [
        code
        for code, check in catalogue.check_names().items()
        if catalogue.CHECKS.load(f"{code.lower()}_{check}").CHECK.wants(_scenario(name))
    ]


def read_by(code: str) -> list[str]:
    """The situations that the check ``code`` reads."""
    return [name for name in catalogue.SITUATIONS.names() if code in readers(name)]


def split(feeding: list[str]) -> tuple[str, list[str]]:
    """The shorter of two lists: the situations of ``feeding``, or those not in it, after words that say which."""
    others = [name for name in catalogue.SITUATIONS.names() if name not in feeding]
    if len(others) < len(feeding):
        return ("all but " if others else "all"), others
    return ("" if feeding else "none of the catalogue's"), feeding


def tripped_by(code: str) -> list[str]:
    """The faults that must trip the check ``code``."""
    return [fault.name for fault in causes.faults().values() if code in fault.trips]


def checks_page() -> str:
    """The text of docs/checks.md: every check in full."""
    lines = ["# Checks", "", "Written by `python -m verifier.explain --write docs/checks.md`; do not edit.", ""]
    lines += [
        "`lockstep explain CODE` prints the same, also for a fault, a cause or a situation. A check that compared"
    ]
    lines += ["nothing is *unknown*; what a strategy does not claim is not held against it.", ""]
    lines += ["| check | |", "|---|---|"]
    for code, name in catalogue.check_names().items():
        summary = catalogue.CHECKS.summary(f"{code.lower()}_{name}")
        lines.append(f"| [{code} {name}](#{code.lower()}-{name}) | {_markdown(summary)} |")
    for code, name in catalogue.check_names().items():
        lines += ["", *_check(code, name)]
    lines += ["", "## Causes", "", "What a failure may name as its cause; in angle brackets what is filled in.", ""]
    lines += ["| cause | means | mend it | named by |", "|---|---|---|---|"]
    for cause in causes.causes().values():
        cells = ["<br>".join(map(_cell, texts)) for texts in (cause.explanations, cause.hints)]
        lines.append(f"| `{cause.name}` | {cells[0]} | {cells[1]} | {', '.join(cause.named_by)} |")
    return "\n".join(lines) + "\n"


def _check(code: str, name: str) -> list[str]:
    text = catalogue.CHECKS.docstring(f"{code.lower()}_{name}")
    summary, *rest = _PART.split(text)
    lines = [f"## {code} {name}", "", _markdown(summary)]
    for part, said in zip(rest[::2], rest[1::2], strict=True):
        lines += ["", f"**{part}.** {_markdown(said)}"]
    (words, names), planted = split(read_by(code)), tripped_by(code)
    lines += ["", f"**Situations that it reads.** {words}{_linked(names)}"]
    lines += ["", "**Faults that trip it.** " + (", ".join(f"`{f}`" for f in planted) or "none; see `tests/specimens`")]
    return lines


def situations_page() -> str:
    """The text of docs/situations.md: every situation, by the smallest profile that includes it."""
    lines = ["# Situations", "", "Written by `python -m verifier.explain --write docs/situations.md`; do not edit.", ""]
    lines += ["The conditions under which every strategy is tried. A profile includes those of the smaller ones before"]
    lines += ["it; `thorough` runs most of them with three seeds. A strategy that does not claim what a situation"]
    lines += ["*needs* may refuse it with an error."]
    lines += ["", "Each situation has processes of its own. Only `quick`, with the local launcher, has all of its"]
    lines += ["situations in the same processes, one after the other: there a *pass* is believed, and whatever else is"]
    lines += ["found is asked again, apart. A mistake that is made only the first time in a process is seen by `quick`"]
    lines += ["in `plain` alone."]
    for profile in (*PROFILES, None):
        names = [name for name in catalogue.SITUATIONS.names() if situation(name).since == profile]
        names.sort(key=lambda name: (situation(name).order, name))
        if names:
            lines += ["", f"## {profile or 'chosen by --workload'}"]
        for name in names:
            lines += ["", *_situation(name)]
    return "\n".join(lines) + "\n"


def _situation(name: str) -> list[str]:
    found, scenario = situation(name), _scenario(name)
    batches = f" of {scenario.num_micro_batches} micro-batches" if scenario.num_micro_batches > 1 else ""
    needs = ", ".join(f"`{need}`" for need in scenario.needs)
    return [
        f"### {name}",
        "",
        _markdown(catalogue.SITUATIONS.docstring(name)),
        "",
        f"- workload `{found.workload}`: {_markdown(catalogue.WORKLOADS.summary(found.workload))}",
        f"- {scenario.num_steps} step{'s' if scenario.num_steps > 1 else ''}{batches}, {scenario.optimizer}",
        *([f"- needs {needs}"] if needs else []),
        *([f"- left out on more than {found.most_ranks} ranks"] if found.most_ranks else []),
        "- read by " + ", ".join(f"[{code}](checks.md#{code.lower()}-{_name(code)})" for code in readers(name)),
    ]


def _name(code: str) -> str:
    return catalogue.check_names()[code]


def _linked(names: list[str]) -> str:
    return ", ".join(f"[{name}](situations.md#{name})" for name in names)


def _markdown(text: str) -> str:
    """A docstring's text as Markdown: literals in single backticks, incidents as links."""
    text = text.strip().replace("``", "`")
    return _INCIDENT.sub(r"[\1#\2](https://github.com/\1/issues/\2)", text)


def _cell(text: str) -> str:
    return text.replace("<", "&lt;").replace(">", "&gt;").replace("|", "\\|")


PAGES: dict[str, Callable[[], str]] = {"checks.md": checks_page, "situations.md": situations_page}
