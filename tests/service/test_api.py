"""The HTTP surface: what is accepted, what is refused and in which words, and what can be read back."""

from __future__ import annotations

import json
from typing import Any

import pytest

from service.db import connect
from service.heartbeat import beat
from service.queue import MAX_PRIORITY
from service.rundir import REPORT, Attempt
from service.runs import Claim, Runs, new_run_id
from service.schemas import RunSubmission
from service.settings import Settings
from verifier.report.model import Report
from verifier.request import Request

BUILTIN = {"kind": "builtin", "name": "bucketed"}
NOWHERE = "01a1fdf0-defb-7301-98c2-9c925a994b94"


def submit(client: Any, **fields: Any) -> Any:
    return client.post("/runs", json={"strategy": BUILTIN, **fields})


def execute(settings: Settings, run_id: str, verdict: str = "pass") -> str:
    """What a worker does, without a queue. Returns the report's JSON."""
    runs = Runs(connect(settings.database))
    claim = runs.claim(run_id, "tester")
    assert claim is not None
    report = Report(verdict=verdict, summary="tried", strategy=claim.request.strategy.model_dump())
    attempt = Attempt(settings.runs_dir, run_id, claim.attempt)
    attempt.begin()
    attempt.publish(REPORT, report.to_json())
    assert runs.finish(claim, verdict, "tried")
    return report.to_json()


def test_a_submitted_run_is_queued_and_can_be_looked_up(client: Any) -> None:
    answer = submit(client, world_size=2, labels={"commit": "abc"}, priority=5, checks=["LS201"])
    assert answer.status_code == 202
    run = answer.json()
    assert answer.headers["location"] == f"/runs/{run['id']}"
    assert (run["state"], run["verdict"], run["labels"], run["priority"]) == ("queued", None, {"commit": "abc"}, 5)
    assert run["request"]["checks"] == ["LS201"]
    assert client.get(answer.headers["location"]).json() == run


def test_runs_are_found_by_strategy_and_labels(client: Any) -> None:
    first = submit(client, world_size=2, labels={"branch": "main", "a=b": "c d"}).json()["id"]
    second = submit(client, world_size=2, labels={"branch": "main"}).json()["id"]
    submit(client, world_size=2)

    def found(**query: Any) -> list[str]:
        return [run["id"] for run in client.get("/runs", params=query).json()["runs"]]

    assert found(label="branch=main") == [second, first]
    assert found(label="branch=mai") == found(label="bran=main") == found(strategy="naive") == []
    assert len(found(strategy="bucketed")) == 3
    assert found(label=["branch=main", "branch=other"]) == []
    for wrong in ("branch", "=main", 'a"=b', "a\\=b"):
        assert client.get("/runs", params={"label": wrong}).status_code == 422


def test_the_submission_is_the_request_with_the_same_defaults() -> None:
    ours, theirs = RunSubmission.model_fields, Request.model_fields
    assert set(ours) - {"priority", "labels", "webhook"} == set(theirs) - {"trust"}
    for name in set(ours) & set(theirs) - {"strategy"}:
        assert ours[name].default == theirs[name].default, name


@pytest.mark.parametrize(
    ("body", "field", "words"),
    [
        ({}, "body.strategy", "Field required"),
        ({"strategy": {"kind": "file", "path": "/etc/passwd"}}, "body.strategy", "'file'"),
        ({"strategy": {"kind": "builtin"}}, "body.strategy.builtin.name", "Field required"),
        ({"strategy": {"kind": "import", "entrypoint": "no"}}, "body.strategy.import.entrypoint", "package.module"),
        ({"strategy": BUILTIN, "world_size": "many"}, "body.world_size", "integer"),
        ({"strategy": BUILTIN, "profile": "slow"}, "body.profile", "'thorough'"),
        ({"strategy": BUILTIN, "trust": True}, "body.trust", "not permitted"),
        ({"strategy": BUILTIN, "wrld_size": 2}, "body.wrld_size", "not permitted"),
        ({"strategy": BUILTIN, "seed": -1}, "body.seed", "greater than or equal to 0"),
        ({"strategy": BUILTIN, "timeout_s": 0}, "body.timeout_s", "greater than 0"),
        ({"strategy": BUILTIN, "priority": MAX_PRIORITY + 1}, "body.priority", str(MAX_PRIORITY)),
        ({"strategy": BUILTIN, "labels": {"a": 1}}, "body.labels.a", "string"),
        ([], "body", "dictionary"),
    ],
)
def test_a_wrong_body_is_refused_and_the_field_named(client: Any, body: Any, field: str, words: str) -> None:
    answer = client.post("/runs", json=body)
    assert answer.status_code == 422
    problem = answer.json()
    assert field in [error["field"] for error in problem["errors"]]
    assert words in problem["detail"]
    assert client.get("/runs").json()["runs"] == []


@pytest.mark.parametrize(
    ("text", "status"),
    [
        (b"{", 422),
        (b'"\xff"', 400),
        (b'{"strategy": {"kind": "builtin", "name": "bucketed", "options": {"a": NaN}}}', 422),
        (b'{"strategy": {"kind": "builtin", "name": "bucketed", "options": {"a": 1e999}}}', 422),
        (b'{"strategy": {"kind": "builtin", "name": "bucketed", "options": {"a": "\\ud800"}}}', 422),
        (b'{"strategy": {"kind": "builtin", "name": "bucketed", "options": {"a": "\\u0000"}}}', 422),
        (b"[" * 100_000, 400),
        (b'{"strategy": {"kind": "builtin", "name": "b", "options": ' + b'{"a":' * 900 + b"1" + b"}" * 902, 422),
    ],
)
def test_what_cannot_be_stored_is_refused_not_choked_on(client: Any, text: bytes, status: int) -> None:
    answer = client.post("/runs", content=text, headers={"content-type": "application/json"})
    assert answer.status_code in (400, 422)
    assert answer.status_code == status
    assert answer.json()["detail"]


def test_a_backslash_before_u0000_is_no_nul(client: Any) -> None:
    assert submit(client, labels={"a": "\\u0000"}).json()["labels"] == {"a": "\\u0000"}


def test_what_the_engine_will_not_plan_is_refused_in_its_words(client: Any) -> None:
    answer = submit(client, world_size=65)
    assert answer.status_code == 422
    assert answer.json()["detail"].startswith("world_size is 65;")
    misspelt = client.post("/runs", json={"strategy": {"kind": "builtin", "name": "bucketted"}})
    assert "Did you mean 'bucketed'?" in misspelt.json()["detail"]
    assert client.get("/runs").json()["runs"] == []


def test_source_is_refused_unless_the_operator_trusts_it(client: Any) -> None:
    source = {"kind": "source", "files": {"mine.py": "def wrap(model): ..."}, "entrypoint": "mine:wrap"}
    refused = client.post("/runs", json={"strategy": source})
    assert refused.status_code == 422
    assert "LOCKSTEP_TRUST_SOURCE" in refused.json()["detail"]
    client.app.state.context.settings.trust_source = True
    accepted = client.post("/runs", json={"strategy": source})
    assert accepted.status_code == 202
    assert accepted.json()["request"]["trust"] is True


def test_there_is_no_trust_for_anything_but_source(client: Any) -> None:
    client.app.state.context.settings.trust_source = True
    assert submit(client).json()["request"]["trust"] is False


def test_runs_come_newest_first_page_by_page(client: Any) -> None:
    made = [submit(client, seed=seed).json()["id"] for seed in range(7)]
    # Within a millisecond the order is any, but one and the same.
    seen: list[str] = []
    query: dict[str, Any] = {"limit": 3}
    while True:
        page = client.get("/runs", params=query).json()
        seen += [run["id"] for run in page["runs"]]
        if page["next_cursor"] is None:
            break
        query["cursor"] = page["next_cursor"]
    assert seen == sorted(made, reverse=True)
    assert client.get("/runs", params={"limit": 7}).json()["next_cursor"] is None


def test_runs_are_filtered_by_state_and_verdict(client: Any, settings: Settings) -> None:
    waiting, wrong, right = (submit(client).json()["id"] for _ in range(3))
    execute(settings, wrong, "fail")
    execute(settings, right)

    def listed(**query: str) -> set[str]:
        return {run["id"] for run in client.get("/runs", params=query).json()["runs"]}

    assert listed(state="queued") == {waiting}
    assert listed(state="finished") == {wrong, right}
    assert listed(verdict="fail") == {wrong}
    assert listed(state="queued", verdict="fail") == set()


@pytest.mark.parametrize("query", ["limit=0", "limit=201", "cursor=here", "state=done", "verdict=ok", "stat=queued"])
def test_a_wrong_query_is_refused(client: Any, query: str) -> None:
    answer = client.get(f"/runs?{query}")
    assert answer.status_code == 422
    assert query.partition("=")[0] in answer.json()["detail"]


@pytest.mark.parametrize("run_id", [NOWHERE, "no-such-run", "%00", "..", "a" * 500])
@pytest.mark.parametrize("path", ["/runs/{}", "/runs/{}/report"])
def test_a_run_that_does_not_exist_is_not_found(client: Any, path: str, run_id: str) -> None:
    answer = client.get(path.format(run_id))
    assert answer.status_code in (404, 200 if run_id == ".." else 404)
    if answer.status_code == 404:
        assert "GET /" in answer.json()["detail"]


def test_nothing_else_is_there_and_it_says_so(client: Any) -> None:
    missing, method = client.get("/nothing"), client.request("DELETE", "/runs")
    assert missing.status_code == 404
    assert missing.headers["content-type"] == "application/problem+json"
    assert method.status_code == 405
    assert method.headers["allow"]
    assert "DELETE" in method.json()["detail"]


def test_the_report_is_the_stored_file_unchanged(client: Any, settings: Settings) -> None:
    run_id = submit(client).json()["id"]
    stored = execute(settings, run_id)
    answer = client.get(f"/runs/{run_id}/report")
    assert answer.text == stored
    assert answer.headers["content-type"] == "application/json"
    assert answer.headers["vary"] == "Accept"
    for accept in ("*/*", "application/*", "application/json;q=0.1", "image/png, application/json", "text/x, */*;q=0"):
        status = 406 if "q=0" in accept.split(",")[-1] and "0.1" not in accept else 200
        assert client.get(f"/runs/{run_id}/report", headers={"accept": accept}).status_code == status, accept
    assert client.get(f"/runs/{run_id}/report?format=pdf").status_code == 422


def test_a_report_before_its_time_and_one_that_is_gone(client: Any, settings: Settings) -> None:
    run_id = submit(client).json()["id"]
    early = client.get(f"/runs/{run_id}/report")
    assert (early.status_code, early.json()["type"]) == (409, "urn:lockstep:no-report-yet")
    execute(settings, run_id)
    (settings.runs_dir / run_id / REPORT).unlink()
    assert client.get(f"/runs/{run_id}/report").status_code == 410


def test_an_errored_run_has_no_report_but_says_why(client: Any, settings: Settings) -> None:
    run_id = submit(client).json()["id"]
    runs = Runs(connect(settings.database))
    claim = runs.claim(run_id, "tester")
    assert isinstance(claim, Claim)
    runs.fail(claim, "Traceback: the engine broke")
    assert client.get(f"/runs/{run_id}").json()["error"] == "Traceback: the engine broke"
    assert client.get(f"/runs/{run_id}/report").json()["type"] == "urn:lockstep:no-report"


def test_a_run_can_be_cancelled_until_it_has_ended(client: Any, settings: Settings) -> None:
    first, second, third = (submit(client).json()["id"] for _ in range(3))
    for _ in range(2):
        answer = client.post(f"/runs/{first}/cancel")
        assert (answer.status_code, answer.json()["state"]) == (200, "cancelled")
    runs = Runs(connect(settings.database))
    assert runs.claim(first, "tester") is None
    claim = runs.claim(second, "tester")
    assert client.post(f"/runs/{second}/cancel").json()["state"] == "cancelled"
    assert runs.cancelled([first, second, third]) == [first, second]
    assert not runs.finish(claim, "pass", "too late")
    execute(settings, third)
    refused = client.post(f"/runs/{third}/cancel")
    assert refused.status_code == 409
    assert "finished" in refused.json()["detail"]
    assert client.post(f"/runs/{new_run_id()}/cancel").status_code == 404


def test_the_catalogues(client: Any) -> None:
    strategies = client.get("/strategies").json()
    assert "bucketed" in [entry["name"] for entry in strategies]
    assert all(entry["summary"] for entry in strategies)
    checks = client.get("/checks").json()
    assert all(entry["code"].startswith("LS") and entry["name"] and entry["summary"] for entry in checks)


def test_the_report_schema_is_the_models(client: Any) -> None:
    schema = client.get("/schema/report.json").json()
    assert schema["properties"]["schema"]["default"] == 1
    assert set(schema["required"]) >= {"verdict", "strategy"}


def test_health_and_readiness(client: Any, settings: Settings) -> None:
    assert client.get("/healthz").json() == {"status": "ok"}
    assert client.get("/readyz").json() == {"status": "ready", "workers": 0}
    beat(connect(settings.database), "somebody", 2)
    assert client.get("/readyz").json()["workers"] == 1


def test_a_database_that_is_away_is_a_503(client: Any, settings: Settings) -> None:
    client.app.state.context.engine.dispose()
    database = settings.data_dir / "lockstep.sqlite"
    for file in settings.data_dir.glob("lockstep.sqlite*"):
        file.unlink()
    database.mkdir()
    for answer in (client.get("/healthz"), client.get("/readyz"), client.get("/runs"), submit(client)):
        assert answer.status_code == 503
        assert answer.headers["retry-after"]
        assert "database" in answer.json()["detail"]


def test_a_mistake_of_ours_is_a_500_that_tells_nothing(client: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Runs, "page", lambda *_: 1 / 0)
    answer = client.get("/runs")
    assert answer.status_code == 500
    assert "Zero" not in answer.text


def test_an_empty_database_is_not_ready(client: Any) -> None:
    with client.app.state.context.engine.begin() as connection:
        connection.exec_driver_sql("DROP TABLE alembic_version")
    answer = client.get("/readyz")
    assert answer.status_code == 503
    assert "lockstep serve" in answer.json()["detail"]


def test_every_problem_is_declared_as_one(client: Any) -> None:
    document = client.get("/openapi.json").json()
    for path, operations in document["paths"].items():
        for method, operation in operations.items():
            for status, response in operation["responses"].items():
                if int(status) >= 400:
                    assert list(response["content"]) == ["application/problem+json"], (path, method, status)
    assert "HTTPValidationError" not in json.dumps(document["paths"])
