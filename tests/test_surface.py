"""The public surface. A failing test here means: write a changelog entry, or change it back."""

from __future__ import annotations

import inspect
import json

import ddp_core
import verifier
from verifier.report.model import Report
from verifier.request import Request


def test_names():
    assert verifier.__all__ == ["Recording", "Report", "Request", "Scenario", "Verdict", "check", "verify"]
    assert ddp_core.__all__ == ["Comm", "Contract", "DataParallel", "Driver", "Strategy"]
    for package in (verifier, ddp_core):
        for name in package.__all__:
            assert getattr(package, name) is not None
    assert callable(verifier.check)
    assert not inspect.ismodule(verifier.check)


def test_command(command):
    text = command("verify", "--help").stdout
    for flag in (
        "--world-size", "--profile", "--check", "--workload", "--backend", "--device", "--launcher", "--driver",
        "--option", "--fault", "--seed", "--delay", "--timeout", "--out", "--trust", "--format", "--output",
    ):  # fmt: skip
        assert flag in text, flag
    assert command("--version").stdout == f"lockstep {ddp_core.__version__}\n"
    text = command("--help").stdout
    for name in (
        "verify", "judge", "list", "explain", "doctor", "simulate", "calibrate", "tune", "bench", "serve",
        "worker", "keys", "submit", "watch", "runs",
    ):  # fmt: skip
        assert f" {name} " in text, name


def test_request_fields():
    assert set(Request.model_fields) == {
        "strategy", "world_size", "profile", "workloads", "checks", "backend", "device", "launcher", "driver", "fault",
        "seed", "delay_ms", "timeout_s", "trust",
    }  # fmt: skip


def test_report_document(lockstep):
    report = lockstep.verify("bucketed", fault="skipped_bucket", world_size=2)
    document = json.loads(report.to_json())
    assert document["schema"] == 1
    assert set(document) == {
        "schema", "verdict", "summary", "strategy", "request", "scenarios", "environment", "checks", "problems",
        "communication", "timings", "repeat",
    }  # fmt: skip
    failed = next(check for check in document["checks"] if check["code"] == "LS201")
    assert {"code", "name", "verdict", "claimed", "comparisons", "failed", "failures"} <= set(failed)
    assert {
        "scenario", "step", "rank", "parameter", "bucket", "index", "expected", "observed", "cause", "confidence",
        "explanation", "hint",
    } == set(failed["failures"][0])  # fmt: skip
    assert document["communication"]["calls"] > 0
    assert document["communication"]["by_op"]["allreduce"] > 0
    assert Report.model_validate(document) == report


def test_from_python(tmp_path):
    assert verifier.verify("bucketed", world_size=2, profile="quick", out=tmp_path / "run").verdict == "pass"
    assert (tmp_path / "run" / "report.json").exists()
    assert verifier.Recording.load(tmp_path / "run" / "scenarios" / "plain").complete
