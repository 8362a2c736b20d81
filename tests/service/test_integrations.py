"""The GitHub Action and the GitLab job: their own steps, run as they would be, against a service."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
import yaml

from tests.conftest import ROOT

ACTION = yaml.safe_load((ROOT / "action.yml").read_text())
GITLAB = yaml.safe_load((ROOT / "integrations" / "gitlab.yml").read_text())[".lockstep"]


@pytest.fixture
def environment(start: Callable[..., Any], tmp_path: Path) -> dict[str, str]:
    service = start("--port", "0").ready()
    return {
        "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
        "HOME": str(tmp_path),
        "LOCKSTEP_SERVER": str(service.http.base_url),
    }


def bash(script: str, environment: dict[str, str], folder: Path) -> subprocess.CompletedProcess[str]:
    words = ["bash", "--noprofile", "--norc", "-eo", "pipefail", "-c", script]
    return subprocess.run(words, env=environment, cwd=folder, text=True, capture_output=True, timeout=120)


def github(environment: dict[str, str], folder: Path, strategy: str, flags: str) -> subprocess.CompletedProcess[str]:
    (folder / "lockstep" / "bin").mkdir(parents=True, exist_ok=True)
    step = next(step for step in ACTION["runs"]["steps"] if step["name"] == "Verify")
    assert set(step["env"]) == {
        "LOCKSTEP_SERVER", "LOCKSTEP_API_KEY", "LOCKSTEP_STRATEGY", "LOCKSTEP_FLAGS", "LOCKSTEP_JUNIT",
    }  # fmt: skip
    given = {
        "LOCKSTEP_STRATEGY": strategy, "LOCKSTEP_FLAGS": flags, "LOCKSTEP_JUNIT": "junit.xml",
        "RUNNER_TEMP": str(folder), "GITHUB_ACTION_PATH": str(ROOT), "GITHUB_STEP_SUMMARY": str(folder / "summary.md"),
        "GITHUB_REPOSITORY": "me/mine", "GITHUB_SHA": "abc", "GITHUB_RUN_ID": "1", "GITHUB_RUN_ATTEMPT": "1",
        "GITHUB_ACTION": strategy + flags.replace(" ", ""),
    }  # fmt: skip
    return bash(step["run"], {**environment, **given}, folder)


def test_the_action_passes_and_fails_the_job(environment: dict[str, str], tmp_path: Path) -> None:
    passed = github(environment, tmp_path, "bucketed", "--world-size 2")
    assert passed.returncode == 0, passed.stderr
    assert "The stub says pass." in (tmp_path / "summary.md").read_text()
    assert ElementTree.parse(tmp_path / "junit.xml").getroot().tag == "testsuites"
    failed = github(environment, tmp_path, "naive", "--world-size 2 --option verdict=fail")
    assert failed.returncode == 1
    assert "The stub says fail." in (tmp_path / "summary.md").read_text()
    assert github(environment, tmp_path, "bucketed", "--world-size 99").returncode == 2


def test_what_is_given_is_no_command(environment: dict[str, str], tmp_path: Path) -> None:
    done = github(environment, tmp_path, "$(touch broken)`touch broken`", "; touch broken")
    assert done.returncode == 2
    assert not (tmp_path / "broken").exists()


def test_the_gitlab_job(environment: dict[str, str], tmp_path: Path) -> None:
    (script,) = GITLAB["script"]
    given = {
        "LOCKSTEP_STRATEGY": "naive", "LOCKSTEP_FLAGS": "--world-size 2 --option verdict=fail",
        "CI_COMMIT_SHA": "abc", "CI_PROJECT_PATH": "me/mine", "CI_JOB_ID": "7",
    }  # fmt: skip
    done = bash(script.replace("/opt/lockstep", str(ROOT)), {**environment, **given}, tmp_path)
    assert done.returncode == 1, done.stderr
    for name in (*GITLAB["artifacts"]["paths"], GITLAB["artifacts"]["reports"]["junit"]):
        assert (tmp_path / name).stat().st_size > 0


def test_the_client_installs_without_torch() -> None:
    script = [sys.executable, str(ROOT / "docker" / "requirements.py"), "--without-torch", "client"]
    wanted = subprocess.run(script, cwd=ROOT, text=True, capture_output=True, check=True).stdout
    assert "httpx" in wanted
    assert "torch" not in wanted
