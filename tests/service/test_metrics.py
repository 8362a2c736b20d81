"""What Prometheus reads is what the database holds, in a form that its own parser takes."""

from __future__ import annotations

from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families

from service import heartbeat
from service.db import connect
from service.runs import Runs
from service.settings import Settings
from tests.service.test_api import execute, submit


def values(client: Any) -> dict[tuple[str, ...], float]:
    """By name and label values."""
    answer = client.get("/metrics")
    assert answer.status_code == 200
    families = text_string_to_metric_families(answer.text)
    return {(s.name, *s.labels.values()): s.value for family in families for s in family.samples}


def test_empty(client: Any) -> None:
    found = values(client)
    assert (
        found["lockstep_runs", "queued"] == found["lockstep_workers",] == found["lockstep_queue_oldest_seconds",] == 0
    )
    assert ("lockstep_run_wait_seconds", "0.5") not in found


def test_runs_workers_and_requests(client: Any, settings: Settings) -> None:
    engine = connect(settings.database)
    heartbeat.beat(engine, "somebody", 4)
    done, running, _waiting = (submit(client, world_size=3).json()["id"] for _ in range(3))
    execute(settings, done, "fail")
    Runs(engine).claim(running, "somebody")
    client.get(f"/runs/{done}")
    client.get("/runs/nonsense")
    found = values(client)
    assert [found["lockstep_runs", state] for state in ("queued", "running", "finished", "errored")] == [1, 1, 1, 0]
    assert [found["lockstep_runs_finished", verdict] for verdict in ("pass", "fail", "unknown")] == [0, 1, 0]
    assert 0 < found["lockstep_queue_oldest_seconds",] < 60
    assert 0 <= found["lockstep_run_wait_seconds", "0.5"] <= found["lockstep_run_wait_seconds", "0.99"] < 60
    assert 0 <= found["lockstep_run_duration_seconds", "0.9"] < 60
    assert (found["lockstep_workers",], found["lockstep_slots",], found["lockstep_ranks_running",]) == (1, 4, 3)
    assert found["lockstep_http_requests_total", "POST", "/runs", "202"] == 3
    assert found["lockstep_http_requests_total", "GET", "/runs/{run_id}", "200"] == 1
    assert found["lockstep_http_requests_total", "GET", "/runs/{run_id}", "404"] == 1


def test_ids_do_not_become_labels(client: Any) -> None:
    for path in ("/a", "/b", "/runs/1", "/runs/2"):
        client.get(path)
    routes = {key[2] for key in values(client) if key[0] == "lockstep_http_requests_total"}
    assert routes <= {"none", "/runs/{run_id}", "/metrics"}


def test_methods_without_end_do_not_become_labels(client: Any) -> None:
    for number in range(5):
        client.request(f"METHOD{number}", "/runs")
    methods = {key[1] for key in values(client) if key[0] == "lockstep_http_requests_total"}
    assert "other" in methods
    assert not any(method.startswith("METHOD") for method in methods)


def test_our_own_mistake_is_answered_as_everything_is(client: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: Any, **__: Any) -> Any:
        raise ZeroDivisionError

    monkeypatch.setattr(Runs, "page", broken)
    answer = client.get("/runs", headers={"X-Request-Id": "mine-18"})
    assert (answer.status_code, answer.json()["type"]) == (500, "urn:lockstep:internal-error")
    assert answer.headers["x-request-id"] == "mine-18"
    assert answer.headers["x-content-type-options"] == "nosniff"
    assert values(client)["lockstep_http_requests_total", "GET", "/runs", "500"] == 1


def test_every_answer_is_marked_and_safe(client: Any) -> None:
    run_id = submit(client, world_size=2).json()["id"]
    for path in ("/runs", f"/runs/{run_id}", "/nothing", "/metrics", f"/runs/{run_id}/report", "/healthz"):
        headers = client.get(path).headers
        assert headers["x-content-type-options"] == "nosniff"
        assert headers["x-frame-options"] == "DENY"
        assert "default-src 'none'" in headers["content-security-policy"]
        assert headers["x-request-id"]
    assert client.get("/runs", headers={"X-Request-Id": "mine-17"}).headers["x-request-id"] == "mine-17"
    assert client.get("/runs", headers={"X-Request-Id": "no good id"}).headers["x-request-id"] != "no good id"
