"""The real engine behind the service: a posted run's report is the engine's, and nothing outlives a killed service."""

from __future__ import annotations

import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psutil
import pytest

from service.schemas import RunSubmission
from verifier import engine
from verifier.report import render
from verifier.report.model import Report

SUBMISSION = {"strategy": {"kind": "builtin", "name": "naive"}, "world_size": 2, "profile": "quick"}


def without_measurements(report: Report) -> Any:
    """What does not depend on the clock or on process ids."""
    plain = report.model_dump(mode="json", exclude={"timings", "environment"})
    for scenario in plain["scenarios"]:
        del scenario["seconds"], scenario["timeline"]
    return plain


def test_a_posted_run_gives_the_report_that_the_engine_gives(start: Callable[..., Any], tmp_path: Path) -> None:
    service = start("--port", "0", engine="real").ready()
    run_id, other = (service.http.post("/runs", json=SUBMISSION).json()["id"] for _ in range(2))
    run = service.wait(run_id)
    assert service.wait(other)["verdict"] == run["verdict"], "two at once do not disturb each other"
    answer = service.http.get(f"/runs/{run_id}/report")
    assert answer.headers["content-type"] == "application/json"
    assert answer.text == (service.data_dir / "runs" / run_id / "report.json").read_text()
    posted = Report.model_validate_json(answer.text)
    assert (run["verdict"], run["summary"]) == (posted.verdict, posted.summary)
    assert posted.checks
    for name in ("html", "text", "markdown", "junit"):
        assert service.http.get(f"/runs/{run_id}/report", params={"format": name}).text == render(posted, name)
    page = service.http.get(f"/runs/{run_id}/report", headers={"accept": "text/html,application/xml;q=0.9,*/*;q=0.8"})
    assert page.headers["content-type"].startswith("text/html")
    assert "default-src 'none'" in page.headers["content-security-policy"]
    assert service.end() == 0

    request = RunSubmission.model_validate(SUBMISSION).to_request(trust=False)
    here = engine.run(request, tmp_path / "here")
    assert without_measurements(posted) == without_measurements(here)
    assert engine.judge(service.data_dir / "runs" / run_id).verdict == posted.verdict, "its recording can be judged"


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_ranks_do_not_outlive_the_service(start: Callable[..., Any], number: int) -> None:
    service = start("--port", "0", engine="real").ready()
    run_id = service.http.post("/runs", json={**SUBMISSION, "profile": "standard"}).json()["id"]
    service.wait(run_id, "running")
    tree = psutil.Process(service.process.pid)
    service.until(lambda: len(tree.children(recursive=True)) > 1, "ranks")
    assert service.end(number) == (-number if number == signal.SIGKILL else 0)  # and sees that they are all gone


def test_a_running_run_that_is_cancelled_is_gone_within_two_seconds(start: Callable[..., Any]) -> None:
    service = start("--port", "0", engine="real").ready()
    tree = psutil.Process(service.process.pid)
    run_id = service.http.post("/runs", json={**SUBMISSION, "profile": "thorough"}).json()["id"]
    service.until(lambda: len(tree.children(recursive=True)) > 3, "ranks")
    ranks = tree.children(recursive=True)
    assert service.http.post(f"/runs/{run_id}/cancel").json()["state"] == "cancelled"
    _, left = psutil.wait_procs(ranks, timeout=2)
    assert left == []
    service.until(lambda: not list((service.data_dir / "runs" / ".work").glob("*")), "its folder is gone")
    assert service.http.get(f"/runs/{run_id}").json()["state"] == "cancelled"
    after = service.http.post("/runs", json=SUBMISSION).json()["id"]
    assert service.wait(after)["verdict"] == "pass"
    assert service.end() == 0


def test_the_fork_server_is_kept_for_the_next_run(start: Callable[..., Any]) -> None:
    service = start("--port", "0", engine="real").ready()
    tree = psutil.Process(service.process.pid)
    servers = []
    for _ in range(2):
        service.wait(service.http.post("/runs", json=SUBMISSION).json()["id"])
        servers.append([child.pid for child in tree.children()])
    assert servers[0] == servers[1]
    assert len(servers[0]) == 1
    assert service.end() == 0
