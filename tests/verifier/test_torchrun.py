"""Ranks under a real torchrun: the same recordings, the same verdict; and the entry point's messages when misused."""

from __future__ import annotations

import subprocess
import sys

from verifier import engine
from verifier.request import Builtin, Request


def test_a_scenario_runs_under_torchrun_and_is_judged(tmp_path):
    """LS502 reads one scenario, so one torchrun is enough."""
    request = Request(strategy=Builtin(name="bucketed"), world_size=2, checks=("LS502",), launcher="torchrun")
    report = engine.run(request, tmp_path / "run")
    report.assert_pass()
    assert {scenario.name for scenario in report.scenarios} == {"no_sync_exception"}
    assert engine.judge(tmp_path / "run").verdict == "pass"


def entry(*words):
    command = [sys.executable, "-m", "verifier.worker", *map(str, words)]
    return subprocess.run(command, capture_output=True, text=True, timeout=60)


def test_the_entry_says_what_is_missing(tmp_path):
    result = entry("--scenario", tmp_path / "none.json")
    assert result.returncode == 2
    assert "there is no file" in result.stderr
    (scenario,) = engine.plan(Request(strategy=Builtin(name="naive"), checks=("LS502",)))
    scenario.save(tmp_path)
    result = entry("--scenario", tmp_path / "scenario.json")
    assert result.returncode == 2
    assert "start it with torchrun" in result.stderr
