"""A submission that is sent twice with one key is one run, also when both arrive at once."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import Any

from service.db import connect
from service.runs import Runs
from service.settings import Settings
from tests.service.test_database import REQUEST

RUN = {"strategy": {"kind": "builtin", "name": "bucketed"}, "world_size": 2}


def test_the_same_submission_is_the_same_run(client: Any) -> None:
    headers = {"Idempotency-Key": "nightly-2026-11-21"}
    first, again = (client.post("/runs", json=RUN, headers=headers) for _ in range(2))
    assert (first.status_code, again.status_code) == (202, 202)
    assert first.json()["id"] == again.json()["id"]
    assert again.headers["location"] == first.headers["location"]
    assert len(client.get("/runs").json()["runs"]) == 1
    assert client.post("/runs", json=RUN).json()["id"] != first.json()["id"]


def test_another_submission_under_the_same_key_is_refused(client: Any) -> None:
    headers = {"Idempotency-Key": "k"}
    first = client.post("/runs", json=RUN, headers=headers).json()["id"]
    refused = client.post("/runs", json={**RUN, "world_size": 3}, headers=headers)
    assert refused.status_code == 422
    assert first in refused.json()["detail"]
    assert len(client.get("/runs").json()["runs"]) == 1


def test_a_key_that_is_none_is_refused(client: Any) -> None:
    assert client.post("/runs", json=RUN, headers={"Idempotency-Key": "x" * 201}).status_code == 422
    assert client.post("/runs", json=RUN, headers={"Idempotency-Key": "two words"}).status_code == 422


def test_at_once(settings: Settings) -> None:
    engine = connect(settings.database)
    runs, queued = Runs(engine), list[str]()
    with ThreadPoolExecutor(8) as threads:
        rows = list(
            threads.map(
                lambda _: runs.add(REQUEST, {}, 0, lambda _session, row: queued.append(row.id), idempotency_key="same"),
                range(16),
            )
        )
    assert {row.id for row in rows} == {rows[0].id}
    assert rows[0].id in queued
    assert len(runs.page(50, None, None, None)) == 1
    engine.dispose()
