"""What the README shows is what happens: every console block is run, every command, path and check it names exists."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from tests.conftest import ROOT
from verifier import catalogue

README = (ROOT / "README.md").read_text()
BLOCKS = re.findall(r"```console\n\$ (.*?)\n(.*?)```", README, re.DOTALL)
MASKS = [  # rounding, versions and times differ by machine
    (r"(?m)(?<= )0\.\d+$", "E"),
    (r"torch [\d.]+(\+\w+)?", "torch V"),
    (r"\d\.?\d*e[-+]\d+", "E"),
    (r"observer: .*", "observer: O"),
]


def masked(text: str) -> list[str]:
    for pattern, word in MASKS:
        text = re.sub(pattern, word, text)
    return [" ".join(line.split()) for line in text.strip().splitlines()]


@pytest.mark.parametrize(("command", "shown"), BLOCKS, ids=[command for command, _ in BLOCKS])
def test_console_blocks(command, shown):
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    result = subprocess.run(
        shlex.split(command), cwd=ROOT, env={**os.environ, "PATH": path}, capture_output=True, text=True, timeout=120
    )
    assert masked(result.stdout) == masked(shown)
    assert result.returncode == ("Verdict: fail" in shown)


def test_there_is_a_right_and_a_wrong_one():
    assert ["Verdict: pass" in shown for _, shown in BLOCKS] == [True, False]


def test_the_first_screen_has_the_two_commands():
    first = README.splitlines()[:20]
    assert any(line.strip().startswith("make verify") for line in first)
    assert any(line.strip().startswith("make test") for line in first)


def test_make_test_is_what_ci_runs():
    assert "\tmake test\n" in "\t" + "\n\t".join((ROOT / ".ci" / "run").read_text().splitlines()) + "\n"
    assert "-m pytest -n auto" in (ROOT / "Makefile").read_text()


@pytest.mark.parametrize("document", ["README.md", "ARCHITECTURE.md", "CONTRIBUTING.md", "CHANGELOG.md"])
def test_links_and_files_exist(document):
    text = (ROOT / document).read_text()
    for target in re.findall(r"\]\((?!http)([^)#]+)\)", text):
        assert (ROOT / target).exists(), target
    for target in re.findall(r"`((?:verifier|ddp_core|service|tests|benchmarks)/[\w./]+)`", text):
        if not re.search(r"NAME|NNN", target):
            assert (ROOT / target).exists(), target


def test_checks_are_all_named():
    for code in catalogue.check_names():
        assert f"| {code} |" in README
