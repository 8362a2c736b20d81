"""Who is tried: faults and specimens, which must be caught by exactly the checks that they name, and honest controls.

Special here: found by being there. A fault is a file of ``verifier/faults``, a specimen one of ``tests/specimens``, a
control one of ``tests/controls`` or a built-in strategy; each file says itself what is expected of it.
"""

from __future__ import annotations

import ast
import importlib
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from verifier import catalogue
from verifier.fault import load
from verifier.request import Builtin, FromFile, StrategyRef

TESTS = Path(__file__).parent.parent


@dataclass(frozen=True)
class Subject:
    """One row. ``trips``: the checks that must fail, and no others; empty for a control."""

    kind: str  # fault, specimen, control, strategy
    name: str
    strategy: StrategyRef
    summary: str
    trips: frozenset[str] = frozenset()
    causes: frozenset[str] = frozenset()  # the one to be named first, any of these
    fault: str | None = None
    sources: tuple[str, ...] = ()  # threads, as owner/repository#number or addresses
    right_at: frozenset[int] = frozenset()  # world sizes at which the mistake is none
    driver: str | None = None  # the style in which a control must be recognised

    @property
    def faulty(self) -> bool:
        return self.kind in ("fault", "specimen")


def everybody() -> list[Subject]:
    return [*faults(), *specimens(), *controls()]


def faults() -> list[Subject]:
    found = []
    for name in catalogue.FAULTS.names():
        fault, text = load(name), catalogue.FAULTS.docstring(name)
        options = dict(getattr(fault, "options", None) or {})
        found.append(
            Subject(
                "fault",
                name,
                Builtin(name=fault.applies_to[0], options=options),
                catalogue.FAULTS.summary(name),
                fault.trips,
                frozenset({fault.cause}),
                fault=name,
                sources=_sources(text),
            )
        )
    return found


def specimens() -> list[Subject]:
    found = []
    for name in names_in("specimens"):
        module = importlib.import_module(f"tests.specimens.{name}")
        named = module.CAUSE  # a name, several that may come first, or None: no pattern fits
        causes = {named} if isinstance(named, str) else set(named or ())
        found.append(
            Subject(
                "specimen",
                name,
                _file("specimens", name, module),
                _summary(module),
                frozenset(module.TRIPS),
                frozenset(causes),
                sources=_sources(module.__doc__ or ""),
                right_at=frozenset(getattr(module, "RIGHT_AT", ())),
            )
        )
    return found


def controls() -> list[Subject]:
    builtin = [
        Subject("strategy", name, Builtin(name=name), catalogue.STRATEGIES.summary(name))
        for name in catalogue.STRATEGIES.names()
    ]
    builtin.append(
        Subject(
            "strategy", "bucketed (bf16)", Builtin(name="bucketed", options={"wire": "bf16"}), "bfloat16 on the wire."
        )
    )
    foreign = []
    for name in names_in("controls"):
        module = importlib.import_module(f"tests.controls.{name}")
        foreign.append(
            Subject("control", name, _file("controls", name, module), _summary(module), driver=module.DRIVER)
        )
    return builtin + foreign


def names_in(folder: str) -> list[str]:
    return sorted(p.stem for p in (TESTS / folder).glob("[a-z]*.py"))


def _file(folder: str, name: str, module: Any) -> FromFile:
    attribute = getattr(module, "ATTRIBUTE", "wrap")
    return FromFile(
        path=str(TESTS / folder / f"{name}.py"), attribute=attribute, options=getattr(module, "OPTIONS", {})
    )


def _summary(module: Any) -> str:
    return (ast.get_docstring(ast.parse(Path(module.__file__).read_text())) or "").partition("\n")[0]


def _sources(text: str) -> tuple[str, ...]:
    """``owner/repository#12`` wherever it stands, also behind an address of the same thread."""
    threads = re.findall(r"\b[\w.-]+/[\w.-]+#\d+", text)
    addresses = re.findall(r"https://github\.com/([\w.-]+/[\w.-]+)/(?:issues|pull|discussions)/(\d+)", text)
    threads += [f"{repository}#{number}" for repository, number in addresses]
    return tuple(dict.fromkeys(threads))
