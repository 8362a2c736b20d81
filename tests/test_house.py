"""The house rules, held by tests: import contracts, sizes, docstrings, what is and is not imported."""

from __future__ import annotations

import ast
import importlib.metadata
import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from tests.conftest import ROOT
from verifier import catalogue

SOURCES = sorted(p for top in ("ddp_core", "verifier", "service") for p in (ROOT / top).rglob("*.py"))
PYPROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())


OPTION_LISTS = ("verify", "submit")  # commands: most of their lines are flags


def name(path: Path) -> str:
    return str(path.relative_to(ROOT))


def test_imports_go_one_way():
    command = shutil.which("lint-imports", path=str(Path(sys.executable).parent))
    result = subprocess.run([command, "--no-cache"], cwd=ROOT, capture_output=True, text=True)
    assert result.returncode == 0, result.stdout


@pytest.mark.parametrize("path", SOURCES, ids=name)
def test_a_file_is_of_one_sitting_and_says_what_it_is_for(path):
    text = path.read_text()
    assert len(text.splitlines()) <= 320
    if "migrations/versions" not in str(path):
        assert len(ast.get_docstring(ast.parse(text)) or "") > 40


@pytest.mark.parametrize("path", SOURCES, ids=name)
def test_functions_fit_on_a_screen(path):
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name not in OPTION_LISTS:
            assert node.end_lineno - node.lineno <= 45, f"{node.name} has {node.end_lineno - node.lineno} lines"


def test_the_core_needs_six_packages_and_no_more():
    needs = {re.split(r"[><=\[;]", need)[0] for need in PYPROJECT["project"]["dependencies"]}
    assert needs == {"torch", "numpy", "pydantic", "typer", "rich", "xxhash"}
    assert set(PYPROJECT["project"]["optional-dependencies"]) == {
        "service",
        "client",
        "otel",
        "docker",
        "ray",
        "frameworks",
        "mpi",
        "bench",
        "yelp",
        "dev",
    }


def test_jinja_comes_with_torch():
    assert any(need.lower().startswith("jinja2") for need in importlib.metadata.requires("torch"))


@pytest.mark.parametrize(
    "module", ["verifier", "verifier.cli.main", "verifier.engine", "verifier.__main__", "ddp_core"]
)
def test_the_command_starts_without_torch(module):
    code = f"import sys, {module}; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0


def test_planning_and_judging_need_no_torch():
    code = (
        "import sys\n"
        "from verifier.request import *\n"
        "from verifier.situation import plan\n"
        "from verifier.judge.judging import load_checks\n"
        "plan(Request(strategy=Builtin(name='bucketed'))); load_checks()\n"
        "sys.exit('torch' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0


@pytest.mark.parametrize("kind", catalogue.BY_PLURAL)
def test_every_entry_of_every_catalogue_introduces_itself(kind):
    entries = catalogue.BY_PLURAL[kind]
    for entry in entries.names():
        summary = entries.summary(entry)
        assert 15 < len(summary) <= 120, (entry, summary)
        assert summary.endswith((".", ":", "!")), (entry, summary)


def test_every_check_explains_itself():
    for entry in catalogue.CHECKS.names():
        text = catalogue.CHECKS.docstring(entry)
        for part in ("Claim:", "Catches:", "Blind to:", "Seen in the wild:", "Remedy:"):
            assert part in text, (entry, part)


def test_every_check_has_a_fault_and_every_fault_a_check():
    from verifier.fault import load

    specimens = (p.read_text() for p in (ROOT / "tests" / "specimens").glob("*.py"))
    tripped = set().union(*(load(fault).trips for fault in catalogue.FAULTS.names()))
    tripped |= set(re.findall(r"LS\d\d\d", "".join(specimens)))
    assert tripped == set(catalogue.check_names())


def test_constraints_pin_everything_that_is_asked_for():
    pinned = {
        line.split("==")[0].lower() for line in (ROOT / "constraints.txt").read_text().splitlines() if "==" in line
    }
    extras = PYPROJECT["project"]["optional-dependencies"]
    asked = [*PYPROJECT["project"]["dependencies"]]
    for extra in ("service", "docker", "frameworks", "mpi", "dev"):
        asked += extras[extra]
    names = {re.split(r"[><=\[;]", need)[0].lower().replace("_", "-") for need in asked} - {"lockstep-ddp"}
    assert names <= {pin.replace("_", "-") for pin in pinned}
