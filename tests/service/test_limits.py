"""Too much is answered with 429 and how long to wait; what is within the limits is not."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import httpx
import pytest

from service.app import create_app
from service.db import connect
from service.keys import Keys
from service.runs import Runs
from service.settings import Settings

RUN = {"strategy": {"kind": "builtin", "name": "bucketed"}, "world_size": 2}


class Guarded:
    """The app as others reach it, and keys for it."""

    def __init__(self, settings: Settings) -> None:
        settings.host = "0.0.0.0"
        self.engine = connect(settings.database)
        self.keys, self.runs = Keys(self.engine), Runs(self.engine)
        transport = httpx.ASGITransport(create_app(settings), raise_app_exceptions=False)
        self._http = httpx.AsyncClient(transport=transport, base_url="http://test")
        self._runner = asyncio.Runner()

    def ask(self, method: str, path: str, token: str, **more: Any) -> httpx.Response:
        headers = {"Authorization": f"Bearer {token}", **more.pop("headers", {})}
        return self._runner.run(self._http.request(method, path, headers=headers, **more))

    def bare(self, method: str, path: str, **more: Any) -> httpx.Response:
        """Without a key, unless a header has one."""
        return self._runner.run(self._http.request(method, path, **more))

    def submit(self, token: str, **more: Any) -> httpx.Response:
        return self.ask("POST", "/runs", token, json=RUN, **more)

    def close(self) -> None:
        self._runner.run(self._http.aclose())
        self._runner.close()
        self.engine.dispose()


@pytest.fixture
def guarded(settings: Settings, engine_stub: None) -> Iterator[Guarded]:
    guarded = Guarded(settings)
    yield guarded
    guarded.close()


def refused(answer: httpx.Response, kind: str, at_most_s: int) -> None:
    assert answer.status_code == 429
    assert answer.json()["type"] == f"urn:lockstep:{kind}"
    assert 1 <= int(answer.headers["retry-after"]) <= at_most_s
    assert f"Try again in {answer.headers['retry-after']} s." in answer.json()["detail"]


def test_a_full_queue_takes_no_more_until_there_is_room(client: Any, settings: Settings) -> None:
    settings.max_queued = 2
    first, _ = (client.post("/runs", json=RUN) for _ in range(2))
    refused(client.post("/runs", json=RUN), "queue-full", 60)
    assert len(client.get("/runs").json()["runs"]) == 2
    assert client.post(f"/runs/{first.json()['id']}/cancel").status_code == 200
    assert client.post("/runs", json=RUN).status_code == 202


def test_what_a_key_may_have_unfinished(guarded: Guarded, settings: Settings) -> None:
    settings.max_unfinished_per_key = 1
    usual, more = guarded.keys.make("usual", "submit"), guarded.keys.make("more", "submit", max_unfinished=2)
    free = guarded.keys.make("free", "submit", max_unfinished=0)
    first = guarded.submit(usual).json()["id"]
    refused(guarded.submit(usual), "too-many-unfinished-runs", 60)
    assert [guarded.submit(more).status_code for _ in range(3)] == [202, 202, 429]
    assert [guarded.submit(free).status_code for _ in range(5)] == [202] * 5
    claim = guarded.runs.claim(first, "tester")
    assert guarded.submit(usual).status_code == 429, "a running run counts"
    assert claim is not None
    guarded.runs.finish(claim, "pass", "")
    assert guarded.submit(usual).status_code == 202


def test_what_a_key_may_submit_in_an_hour(guarded: Guarded) -> None:
    token = guarded.keys.make("hourly", "submit", runs_per_hour=2)
    for _ in range(2):
        run_id = guarded.submit(token).json()["id"]
        guarded.ask("POST", f"/runs/{run_id}/cancel", token)
    refused(guarded.submit(token), "too-many-runs", 3600)


def test_a_repeated_submission_costs_nothing(guarded: Guarded, settings: Settings) -> None:
    settings.max_unfinished_per_key = 1
    token = guarded.keys.make("once", "submit")
    answers = [guarded.submit(token, headers={"Idempotency-Key": "k"}) for _ in range(2)]
    assert [answer.status_code for answer in answers] == [202, 202]
    assert answers[0].json()["id"] == answers[1].json()["id"]


def test_two_callers_may_choose_the_same_idempotency_key(guarded: Guarded) -> None:
    tokens = [guarded.keys.make(name, "submit") for name in "ab"]
    ids = {guarded.submit(token, headers={"Idempotency-Key": "k"}).json()["id"] for token in tokens}
    assert len(ids) == 2


def test_requests_in_a_minute_by_key(guarded: Guarded, settings: Settings) -> None:
    settings.requests_per_minute = 3
    busy, other = guarded.keys.make("busy", "read"), guarded.keys.make("other", "read")
    assert [guarded.ask("GET", "/runs", busy).status_code for _ in range(3)] == [200] * 3
    refused(guarded.ask("GET", "/runs", busy), "too-many-requests", 60)
    assert guarded.ask("GET", "/runs", other).status_code == 200


def test_the_last_place_goes_to_one(guarded: Guarded, settings: Settings) -> None:
    settings.max_unfinished_per_key = 4
    caller = guarded.keys.caller(guarded.keys.make("crowd", "submit"))
    assert caller is not None
    from service.limits import Limits, TooMuch
    from tests.service.test_database import REQUEST

    limits = Limits.of(settings)

    def submit(_number: int) -> bool:
        try:
            guarded.runs.add(
                REQUEST, {}, 0, lambda *_: None, admit=lambda session: limits.admit(session, caller), key_id=caller.id
            )
        except TooMuch:
            return False
        return True

    with ThreadPoolExecutor(8) as pool:
        assert sum(pool.map(submit, range(24))) == 4


def test_a_body_that_is_too_large(client: Any, settings: Settings) -> None:
    body = b'{"strategy": "' + b"x" * settings.max_body_bytes + b'"}'
    for headers in ({}, {"transfer-encoding": "chunked"}):
        answer = client.post("/runs", content=body, headers={"content-type": "application/json", **headers})
        assert answer.status_code == 413
        assert str(settings.max_body_bytes) in answer.json()["detail"]
