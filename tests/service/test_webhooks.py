"""Messages about ended runs arrive, signed, over a real socket; again after a failure; once where all goes well."""

from __future__ import annotations

import base64
import json
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import Any

import httpx
import pytest
import sqlalchemy as sa
from pydantic import SecretStr

from service import webhooks
from service.db import DeliveryRow, connect
from service.runs import Runs
from service.settings import Settings, load_settings
from service.webhooks import LEASE_S, WAITS_S, Sender, sign
from tests.service.test_api import execute, submit
from verifier.errors import UsageError

SECRET = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"


class Receiver:
    """An HTTP server of somebody who wants to know."""

    def __init__(self) -> None:
        self.got: list[tuple[dict[str, str], bytes]] = []
        self.answers: list[int] = []
        receiver = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["content-length"]))
                receiver.got.append(({name.lower(): value for name, value in self.headers.items()}, body))
                self.send_response(receiver.answers.pop(0) if receiver.answers else 204)
                self.send_header("location", "http://127.0.0.1:1/elsewhere")
                self.end_headers()

            def log_message(self, *_: Any) -> None: ...

        self._server = HTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._server.server_port}/hook"
        self._thread = threading.Thread(target=self._server.serve_forever)
        self._thread.start()

    def close(self) -> None:
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    receiver = Receiver()
    yield receiver
    receiver.close()


@pytest.fixture
def settings(settings: Settings) -> Settings:
    settings.webhook_hosts, settings.webhook_secret = "127.0.0.1, ci.example", SecretStr(SECRET)
    return settings


def rows(settings: Settings) -> list[Any]:
    with connect(settings.database).connect() as connection:
        return list(connection.execute(sa.select(DeliveryRow.__table__)).all())


def let_time_pass(settings: Settings, seconds: float) -> None:
    with connect(settings.database).begin() as connection:
        connection.execute(sa.update(DeliveryRow).values(due_at=DeliveryRow.due_at - seconds))


def test_the_signature_is_the_specifications() -> None:
    """The example that the Standard Webhooks libraries test with."""
    key = base64.b64decode(SECRET.removeprefix("whsec_"))
    signed = sign(key, "msg_p5jXN8AQM9LWM0D4loKWxJek", "1614265330", b'{"test": 2432232314}')
    assert signed == "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE="


def test_a_finished_run_is_told_of_once(client: Any, settings: Settings, receiver: Receiver) -> None:
    run_id = submit(client, world_size=2, webhook=receiver.url).json()["id"]
    sender = Sender(settings, connect(settings.database))
    assert sender.send_due() == 0
    execute(settings, run_id, "fail")
    assert [sender.send_due() for _ in range(2)] == [1, 0]
    ((headers, body),) = receiver.got
    message = json.loads(body)
    assert message["type"] == "run.finished"
    assert message["data"] == {k: v for k, v in client.get(f"/runs/{run_id}").json().items() if k in message["data"]}
    assert (message["data"]["id"], message["data"]["verdict"]) == (run_id, "fail")
    key = base64.b64decode(SECRET.removeprefix("whsec_"))
    assert headers["webhook-signature"] == sign(key, headers["webhook-id"], headers["webhook-timestamp"], body)
    (row,) = rows(settings)
    assert (row.due_at, row.error, row.attempts) == (None, None, 1)
    assert row.delivered_at is not None


def test_cancelled_and_errored_runs_are_told_of_as_well(client: Any, settings: Settings, receiver: Receiver) -> None:
    cancelled, errored = (submit(client, world_size=2, webhook=receiver.url).json()["id"] for _ in range(2))
    client.post(f"/runs/{cancelled}/cancel")
    runs = Runs(connect(settings.database))
    claim = runs.claim(errored, "tester")
    assert claim is not None
    runs.fail(claim, "our mistake")
    runs.fail(claim, "twice")
    assert Sender(settings, connect(settings.database)).send_due() == 2
    assert sorted(json.loads(body)["type"] for _, body in receiver.got) == ["run.cancelled", "run.errored"]


def test_it_is_tried_again_and_keeps_its_name(client: Any, settings: Settings, receiver: Receiver) -> None:
    run_id = submit(client, world_size=2, webhook=receiver.url).json()["id"]
    execute(settings, run_id)
    receiver.answers = [500, 302]
    sender = Sender(settings, connect(settings.database))
    for wait in (*WAITS_S[:2], 0):
        assert sender.send_due() == 1
        assert sender.send_due() == 0, "not before its time"
        let_time_pass(settings, wait + 1)
    assert len({headers["webhook-id"] for headers, _ in receiver.got}) == 1
    assert len(receiver.got) == 3, "a redirect is not followed"
    (row,) = rows(settings)
    assert (row.attempts, row.error) == (3, None)


def test_it_is_given_up_in_the_end_or_when_told_to(client: Any, settings: Settings, receiver: Receiver) -> None:
    lost, unwanted = (submit(client, world_size=2, webhook=receiver.url).json()["id"] for _ in range(2))
    execute(settings, lost)
    sender = Sender(settings, connect(settings.database), post=failing)
    for attempt in range(len(WAITS_S) + 1):
        assert sender.send_due() == 1, attempt
        let_time_pass(settings, max(WAITS_S) + 1)
    assert sender.send_due() == 0
    (row,) = rows(settings)
    assert row.due_at is None
    assert row.delivered_at is None
    assert "ConnectError" in row.error
    execute(settings, unwanted)
    receiver.answers = [410]
    assert Sender(settings, connect(settings.database)).send_due() == 1
    assert all(row.due_at is None for row in rows(settings))


def failing(*_: Any, **__: Any) -> httpx.Response:
    raise httpx.ConnectError("nobody there")


def test_a_sender_that_dies_leaves_it_to_another(client: Any, settings: Settings, receiver: Receiver) -> None:
    run_id = submit(client, world_size=2, webhook=receiver.url).json()["id"]
    execute(settings, run_id)

    def die(*_: Any, **__: Any) -> httpx.Response:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        Sender(settings, connect(settings.database), post=die).send_due()
    other = Sender(settings, connect(settings.database))
    assert other.send_due() == 0
    let_time_pass(settings, LEASE_S + 1)
    assert other.send_due() == 1
    assert len(receiver.got) == 1


def test_several_senders_send_it_once(client: Any, settings: Settings, receiver: Receiver) -> None:
    for _ in range(12):
        run_id = submit(client, world_size=2, webhook=receiver.url).json()["id"]
        execute(settings, run_id)
    senders = [Sender(settings, connect(settings.database)) for _ in range(4)]
    threads = [threading.Thread(target=sender.send_due) for sender in senders]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len({headers["webhook-id"] for headers, _ in receiver.got}) == len(receiver.got) == 12


@pytest.mark.parametrize(
    "url",
    ["http://169.254.169.254/latest", "http://127.0.0.1@evil.example/", "file:///etc/passwd", "https://", "ftp://ci.example",
     "http://[::1", "http://ci.example.evil.example/", "//ci.example/hook", "ci.example"],
)  # fmt: skip
def test_only_hosts_that_the_operator_allows(client: Any, url: str) -> None:
    answer = submit(client, world_size=2, webhook=url)
    assert answer.status_code == 422
    assert "LOCKSTEP_WEBHOOK_HOSTS" in answer.json()["detail"]
    assert submit(client, world_size=2, webhook="https://CI.example:8443/hook?a=b").status_code == 202


def test_the_operators_own_is_the_default(client: Any, settings: Settings, receiver: Receiver) -> None:
    settings.webhook_url = receiver.url
    execute(settings, submit(client, world_size=2).json()["id"])
    assert Sender(settings, connect(settings.database)).send_due() == 1


def test_settings_that_cannot_work(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LOCKSTEP_WEBHOOK_HOSTS", "ci.example")
    with pytest.raises(UsageError, match="LOCKSTEP_WEBHOOK_SECRET"):
        load_settings()
    monkeypatch.setenv("LOCKSTEP_WEBHOOK_SECRET", "whsec_c2hvcnQ=")
    with pytest.raises(UsageError, match="24 to 64 bytes") as told:
        load_settings()
    assert "c2hvcnQ=" not in str(told.value)
    monkeypatch.setenv("LOCKSTEP_WEBHOOK_SECRET", SECRET)
    assert "MfKQ" not in repr(load_settings())
    monkeypatch.setenv("LOCKSTEP_WEBHOOK_URL", "gopher://x")
    with pytest.raises(UsageError, match="gopher"):
        load_settings()


def test_a_worker_sends_by_itself(start: Callable[..., Any], receiver: Receiver) -> None:
    service = start("--port", "0", LOCKSTEP_WEBHOOK_URL=receiver.url, LOCKSTEP_WEBHOOK_SECRET=SECRET).ready()
    run_id = service.submit()
    service.until(lambda: receiver.got, "the message")
    assert json.loads(receiver.got[0][1])["data"]["id"] == run_id
    assert service.end() == 0
    assert webhooks.LEASE_S > webhooks.TIMEOUT_S, "or a slow receiver gets every message twice"
