"""Nobody gets in without a key that may do what is asked: every route, by no key, a wrong, a revoked, a narrow one."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any

import httpx
import pytest
from fastapi import FastAPI

from service.access import asks_for_keys
from service.app import create_app
from service.db import KeyRow, connect
from service.keys import SCOPES, Keys
from service.runs import new_run_id
from service.settings import Settings
from verifier.errors import UsageError

OPEN = {"/healthz", "/readyz", "/strategies", "/checks"}
RUN = {"strategy": {"kind": "builtin", "name": "bucketed"}, "world_size": 2}
NEEDS = {  # all else: read
    ("post", "/runs"): "submit",
    ("post", "/runs/{run_id}/cancel"): "submit",
    ("delete", "/runs/{run_id}"): "submit",
    ("get", "/audit"): "admin",
}


class Asked:
    """The app as it is reached from elsewhere."""

    def __init__(self, settings: Settings) -> None:
        self.app: FastAPI = create_app(settings)
        self.keys = Keys(connect(settings.database))
        self._runner = asyncio.Runner()
        transport = httpx.ASGITransport(self.app, raise_app_exceptions=False)
        self._http = httpx.AsyncClient(transport=transport, base_url="http://test")

    def ask(self, method: str, path: str, token: str | None) -> httpx.Response:
        headers = {"Authorization": f"Bearer {token}"} if token is not None else {}
        body = RUN if (method, path) == ("post", "/runs") else None
        path = path.replace("{run_id}", new_run_id())
        return self._runner.run(self._http.request(method, path, headers=headers, json=body))

    def routes(self) -> list[tuple[str, str]]:
        paths = self.app.openapi()["paths"].items()
        return [(method, path) for path, operations in paths for method in operations if path not in OPEN]

    def close(self) -> None:
        self._runner.run(self._http.aclose())
        self._runner.close()


@pytest.fixture
def asked(settings: Settings, engine_stub: None) -> Iterator[Asked]:
    settings.host = "0.0.0.0"
    asked = Asked(settings)
    yield asked
    asked.close()


def test_every_route_is_guarded(asked: Asked) -> None:
    valid = asked.keys.make("ci", "read")
    revoked = asked.keys.make("left", "admin")
    asked.keys.revoke(revoked.split("_")[1])
    changed = valid[:-1] + ("A" if valid[-1] != "A" else "B")
    assert len(asked.routes()) >= 6
    for method, path in asked.routes():
        for token in (None, "", "lsk_", "nonsense", valid[:-1], changed, revoked, valid.upper()):
            answer = asked.ask(method, path, token)
            assert answer.status_code == 401, (method, path, token)
            assert answer.headers["www-authenticate"] == "Bearer"
            assert answer.headers["content-type"] == "application/problem+json"


def test_without_keys_only_this_machine_is_asked(client: Any, settings: Settings) -> None:
    """A page elsewhere whose name resolves to this machine is refused."""
    settings.allowed_hosts = ""
    names = ("evil.example", "127.0.0.1.evil.example", "localhost.evil.example:8000", "10.0.0.7", "[2001:db8::1]")
    for host in (*names, "[::1", "a:b:c", "", "127.0.0.1@evil.example", "evil.example@127.0.0.1", "test"):
        for path in ("/runs", "/", "/metrics"):
            answer = client.get(path, headers={"host": host})
            assert (answer.status_code, answer.json()["type"]) == (403, "urn:lockstep:not-this-machine"), host
        assert client.post("/runs", json=RUN, headers={"host": host}).status_code == 403
    for host in ("127.0.0.1:8000", "localhost", "localhost:1", "[::1]:8000", "127.8.9.10"):
        assert client.get("/runs", headers={"host": host}).status_code == 200, host
    settings.allowed_hosts = "lab.example, other"
    assert client.get("/runs", headers={"host": "lab.example:8000"}).status_code == 200


def test_a_scope_opens_what_it_says_and_no_more(asked: Asked) -> None:
    for scope in SCOPES:
        token = asked.keys.make(scope, scope)
        for method, path in asked.routes():
            enough = SCOPES.index(scope) >= SCOPES.index(NEEDS.get((method, path), "read"))
            status = asked.ask(method, path, token).status_code
            assert (status == 403) == (not enough), (scope, method, path, status)
            assert status != 401


def test_probes_and_catalogues_are_open(asked: Asked) -> None:
    for path in OPEN:
        assert asked.ask("get", path, None).status_code == 200


@pytest.mark.parametrize(
    ("host", "published_on", "asks"),
    [
        ("127.0.0.1", None, False), ("localhost", None, False), ("::1", None, False), ("127.3.2.1", None, False),
        ("0.0.0.0", None, True), ("::", None, True), ("192.168.1.5", None, True), ("example.org", None, True),
        ("0.0.0.0", "127.0.0.1", False), ("0.0.0.0", "0.0.0.0", True), ("127.0.0.1", "10.0.0.1", True),
    ],
)  # fmt: skip
def test_keys_are_asked_for_unless_only_this_machine_can_ask(host: str, published_on: str | None, asks: bool) -> None:
    assert asks_for_keys(Settings(host=host, published_on=published_on)) is asks


def test_only_a_hash_is_kept(settings: Settings) -> None:
    keys = Keys(connect(settings.database))
    token = keys.make("me", "submit")
    (row,) = keys.all()
    kept = " ".join(str(getattr(row, column.name)) for column in KeyRow.__table__.columns)
    assert token.split("_", 2)[2] not in kept
    assert keys.caller(token).name == "me"


def test_bad_names_and_ids_are_told(settings: Settings) -> None:
    keys = Keys(connect(settings.database))
    with pytest.raises(UsageError, match="1 to 100 characters"):
        keys.make(" ", "read")
    with pytest.raises(UsageError, match="there is no key 'ffff'"):
        keys.revoke("ffff")


def test_commands(command: Any, tmp_path: Any) -> None:
    made = command("keys", "add", "nightly", "--scope", "read", "--data", "data")
    assert made.returncode == 0, made.stderr
    identity = made.stdout.split("_")[1]
    listed = command("keys", "list", "--data", "data").stdout
    assert identity in listed
    assert "valid" in listed
    assert made.stdout.strip().split("_", 2)[2] not in listed
    assert command("keys", "revoke", identity, "--data", "data").returncode == 0
    assert "revoked" in command("keys", "list", "--data", "data").stdout
    assert command("keys", "revoke", "nobody", "--data", "data").returncode == 2
