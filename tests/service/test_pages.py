"""The pages: what they show, whose forms they take, and what a real browser makes of them."""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from service.access import COOKIE
from service.settings import Settings
from tests.conftest import ROOT
from tests.service.test_api import NOWHERE, execute, submit
from tests.service.test_limits import Guarded

VENDOR = ROOT / "service" / "static" / "vendor"
OURS = {"origin": "http://test", "host": "test"}


@pytest.fixture
def guarded(settings: Settings, engine_stub: None) -> Iterator[Guarded]:
    guarded = Guarded(settings)
    yield guarded
    guarded.close()


def test_runs_are_listed_and_shown(client: Any, settings: Settings) -> None:
    assert "There are no runs yet" in client.get("/").text
    first, second = (submit(client, world_size=2, labels={"<b>": "<i>"}).json()["id"] for _ in range(2))
    execute(settings, first)
    execute(settings, second, "fail")
    waiting = submit(client, world_size=3).json()["id"]
    listed = client.get("/").text
    assert re.findall(r'href="/pages/runs/([^"]+)"', listed) == [waiting, second, first]
    assert waiting not in client.get("/?verdict=fail").text
    shown = client.get(f"/pages/runs/{second}").text
    assert f"/runs/{second}/report?format=html" in shown
    assert f"/pages/compare?run={first}&amp;run={second}" in shown
    assert "&lt;b&gt;" in shown
    assert "<b>" not in shown
    assert "hx-trigger" not in shown, "it has ended: nothing more will happen"
    assert 'hx-trigger="every 1s"' in client.get(f"/pages/runs/{waiting}").text
    assert "Something changed" in client.get(f"/pages/compare?run={first}&run={second}").text
    assert client.get(f"/pages/runs/{NOWHERE}").status_code == 404


def test_older_runs_are_a_page_away(client: Any) -> None:
    ids = [submit(client, world_size=2).json()["id"] for _ in range(51)]
    first = client.get("/").text
    assert ids[0] not in first
    (older,) = re.findall(r'href="(/\?cursor=[^"]+)"', first)
    assert re.findall(r'href="/pages/runs/([^"]+)"', client.get(older).text) == [ids[0]]


def test_a_form_submits_and_cancels(client: Any) -> None:
    form = {"strategy": "bucketed", "world_size": "2", "profile": "quick"}
    done = client.post("/pages/runs", data=form, headers=OURS)
    assert done.status_code == 303
    where = done.headers["location"]
    assert "queued" in client.get(where).text
    assert client.post(f"{where}/cancel", data={}, headers=OURS).headers["location"] == where
    assert "cancelled" in client.get(where).text
    actions = [entry["action"] for entry in client.get("/audit").json()["entries"]]
    assert actions == ["run.cancelled", "run.submitted"]
    wrong = client.post("/pages/runs", data={**form, "world_size": "many"}, headers=OURS)
    assert wrong.status_code == 422
    assert "integer" in wrong.json()["detail"]
    assert client.post("/pages/runs", data={**form, "strategy": "bucketted"}, headers=OURS).status_code == 422


@pytest.mark.parametrize("origin", [None, "http://evil.example", "null", "http://test.evil.example", "http://test:81"])
def test_other_sites_forms_are_not_taken(client: Any, origin: str | None) -> None:
    run_id = submit(client, world_size=2).json()["id"]
    headers = {"host": "test", **({"origin": origin} if origin else {})}
    for path in ("/pages/runs", f"/pages/runs/{run_id}/cancel", "/login", "/logout"):
        answer = client.post(path, data={"strategy": "bucketed"}, headers=headers)
        assert (answer.status_code, answer.json()["type"]) == (403, "urn:lockstep:not-our-form")
    assert [run["state"] for run in client.get("/runs").json()["runs"]] == ["queued"]


def test_signing_in(guarded: Guarded) -> None:
    def ask(method: str, path: str, cookie: str = "", **more: Any) -> Any:
        headers = {"authorization": "", **OURS, **({"cookie": f"{COOKIE}={cookie}"} if cookie else {})}
        return guarded.bare(method, path, headers=headers, **more)

    reader, submitter = guarded.keys.make("reader", "read"), guarded.keys.make("submitter", "submit")
    for path in ("/", f"/pages/runs/{NOWHERE}", f"/pages/compare?run={NOWHERE}&run={NOWHERE}"):
        assert ask("GET", path).headers["location"] == "/login"
    assert ask("GET", "/login").status_code == 200
    form = {"strategy": "bucketed", "world_size": "2"}
    for path in ("/pages/runs", f"/pages/runs/{NOWHERE}/cancel"):
        for wrong in ("", "lsk_nonsense", f"lsk_{'0' * 16}_{'A' * 43}"):
            assert ask("POST", path, wrong, data=form).headers["location"] == "/login"
    assert ask("POST", "/login", data={"key": "lsk_nonsense"}).status_code == 401
    signed_in = ask("POST", "/login", data={"key": submitter})
    assert signed_in.status_code == 303
    cookie = signed_in.headers["set-cookie"]
    assert "HttpOnly" in cookie
    assert "SameSite=strict" in cookie
    assert ask("GET", "/", submitter).status_code == 200
    assert guarded.ask("GET", "/runs", submitter).json()["runs"] == []
    assert ask("POST", "/pages/runs", reader, data=form).status_code == 403
    where = ask("POST", "/pages/runs", submitter, data=form).headers["location"]
    assert ask("GET", where, reader).status_code == 200
    run_id = where.rpartition("/")[2]
    assert ask("GET", f"/runs/{run_id}", reader).status_code == 200, "pages link to the API"
    assert ask("POST", f"/runs/{run_id}/cancel", submitter).status_code == 401, "a cookie changes nothing there"
    assert ask("DELETE", f"/runs/{run_id}", submitter).status_code == 401
    guarded.keys.revoke(submitter.split("_")[1])
    assert ask("GET", "/", submitter).headers["location"] == "/login"


def test_what_others_wrote_is_as_it_was_released() -> None:
    table = (VENDOR / "VENDORED.md").read_text()
    files = [path for path in VENDOR.iterdir() if path.name != "VENDORED.md"]
    assert files
    for path in files:
        assert f"| {path.name} |" in table
        assert hashlib.sha256(path.read_bytes()).hexdigest() in table


def chromium() -> str:
    found = shutil.which("chromium")
    if found is None:
        pytest.skip("no chromium is installed")
    return found


def look(url: str, profile: Path, seconds: float) -> tuple[str, str]:
    """The page as a browser has it after some seconds, and what the browser complained of.

    The seconds are the browser's: it does not wait through those in which nothing happens.
    """
    words = [
        chromium(), "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run",
        "--disable-background-networking", "--disable-component-update", "--disable-sync", "--enable-logging=stderr",
        f"--user-data-dir={profile}", f"--virtual-time-budget={int(seconds * 1000)}", "--dump-dom", url,
    ]  # fmt: skip
    done = subprocess.run(words, capture_output=True, text=True, timeout=120, env={**os.environ, "HOME": str(profile)})
    complaints = [line for line in done.stderr.splitlines() if ":CONSOLE" in line]
    return done.stdout, "\n".join(complaints)


def test_a_real_browser_follows_a_run(start: Callable[..., Any], tmp_path: Path) -> None:
    service = start("--port", "0").ready()
    done = service.submit(world_size=2)
    service.wait(done)
    base = str(service.http.base_url)
    page, complaints = look(f"{base}/", tmp_path / "list", 5)
    assert not complaints
    assert f'href="/pages/runs/{done}"' in page
    assert page.count('id="list"') == 1
    page, complaints = look(f"{base}/pages/lab", tmp_path / "lab", 5)
    assert not complaints, "its policy lets the drawings be seen"
    assert page.count('class="chart"') == 4
    held = service.submit(world_size=2, seconds=3)
    page, complaints = look(f"{base}/pages/runs/{held}", tmp_path / "run", 3600)
    assert not complaints
    assert "The report" in page, "it was queued or running when the page was loaded, and then it ended"
    assert "hx-trigger" not in page
    assert service.end() == 0
