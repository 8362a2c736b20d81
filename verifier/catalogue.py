"""What is on offer: one file per strategy, check, fault, workload, situation and launcher, found by listing folders.

Special here: names and summaries are read from the files without importing them, because the command must be
able to list strategies, refuse a misspelt one and show ``--help`` without paying for ``import torch``.
Adding an entry means adding a file; no list has to be edited.
"""

from __future__ import annotations

import ast
import importlib
import importlib.util
from dataclasses import dataclass
from functools import cache, lru_cache
from pathlib import Path
from types import ModuleType

from verifier.errors import UnknownName


@dataclass(frozen=True)
class Catalogue:
    """The entries of one plural folder.

    ``package`` is the folder as an import path, ``kind`` the singular noun used in messages.
    """

    package: str
    kind: str

    @property
    def folder(self) -> Path:
        return _folder(self.package)

    def names(self) -> list[str]:
        folder = self.folder
        return list(_names(folder, folder.stat().st_mtime_ns))

    def require(self, name: str) -> str:
        """Return ``name``; raise UnknownName (valid names, nearest one) when it is not in this catalogue."""
        if name not in self.names():
            raise UnknownName(self.kind, name, self.names())
        return name

    def docstring(self, name: str) -> str:
        source = (self.folder / f"{self.require(name)}.py").read_text(encoding="utf-8")
        return ast.get_docstring(ast.parse(source)) or ""

    def summary(self, name: str) -> str:
        """The first line of the entry's docstring."""
        return self.docstring(name).partition("\n")[0]

    def load(self, name: str) -> ModuleType:
        return importlib.import_module(f"{self.package}.{self.require(name)}")


@cache
def _folder(package: str) -> Path:
    top, _, rest = package.partition(".")
    spec = importlib.util.find_spec(top)  # finds the top package without importing it
    assert spec is not None
    assert spec.submodule_search_locations
    return Path(spec.submodule_search_locations[0], *rest.split("."))


@lru_cache(maxsize=64)
def _names(folder: Path, changed_ns: int) -> tuple[str, ...]:
    """Entry names; cached until a file comes or goes (``changed_ns``), because a plan asks for them thirty times."""
    return tuple(sorted(p.stem for p in folder.glob("*.py") if not p.stem.startswith("_")))


STRATEGIES = Catalogue("ddp_core.strategies", "strategy")
DRIVERS = Catalogue("ddp_core.drivers", "driver")
CHECKS = Catalogue("verifier.checks", "check")
FAULTS = Catalogue("verifier.faults", "fault")
WORKLOADS = Catalogue("verifier.workloads", "workload")
SITUATIONS = Catalogue("verifier.situations", "situation")
LAUNCHERS = Catalogue("verifier.launchers", "launcher")

BY_PLURAL = {
    "strategies": STRATEGIES,
    "checks": CHECKS,
    "faults": FAULTS,
    "workloads": WORKLOADS,
    "launchers": LAUNCHERS,
    "situations": SITUATIONS,
    "drivers": DRIVERS,
}


@cache
def check_names() -> dict[str, str]:
    """Check codes and their names, read from the file names: ``ls201_gradient_equivalence`` -> LS201."""
    return {stem[:5].upper(): stem[6:] for stem in CHECKS.names()}


def check_code(word: str) -> str:
    """LS201 for ``ls201`` and for ``gradient_equivalence``; any other word unchanged."""
    codes = {name: code for code, name in check_names().items()}
    return codes.get(word.lower(), word.upper() if word.upper() in check_names() else word)
