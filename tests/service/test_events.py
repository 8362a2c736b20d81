"""The stream of what happens to a run: live, from a worker elsewhere, taken up where it broke off."""

from __future__ import annotations

import json
import signal
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import httpx

from service.db import connect
from service.runs import Runs, new_run_id
from service.settings import Settings
from tests.service.test_api import execute, submit


def parsed(lines: Iterator[str]) -> list[dict[str, str]]:
    found, event = [], {}
    for line in lines:
        name, _, value = line.partition(": ")
        if line:
            event[name] = value
        elif event.pop("", None) is None and event:
            found.append(event)
            event = {}
    return found


def told(events: list[dict[str, str]]) -> list[tuple[str, str]]:
    return [(event["event"], json.loads(event["data"])["text"]) for event in events]


def test_a_finished_run_is_told_from_the_beginning_and_from_anywhere(client: Any, settings: Settings) -> None:
    run_id = submit(client).json()["id"]
    execute(settings, run_id)
    answer = client.get(f"/runs/{run_id}/events")
    assert answer.headers["content-type"].startswith("text/event-stream")
    events = parsed(iter(answer.text.splitlines()))
    assert told(events) == [("state", "queued"), ("state", "running"), ("state", "finished")]
    rest = client.get(f"/runs/{run_id}/events", headers={"Last-Event-ID": events[0]["id"]})
    assert told(parsed(iter(rest.text.splitlines()))) == told(events)[1:]
    nothing = client.get(f"/runs/{run_id}/events", headers={"Last-Event-ID": events[-1]["id"]})
    assert parsed(iter(nothing.text.splitlines())) == []


def test_what_is_no_run_or_no_event_is_refused(client: Any) -> None:
    assert client.get(f"/runs/{new_run_id()}/events").status_code == 404
    run_id = submit(client).json()["id"]
    assert client.get(f"/runs/{run_id}/events", headers={"Last-Event-ID": "x"}).status_code == 422


def test_only_who_holds_a_run_tells_of_it(client: Any, settings: Settings) -> None:
    run_id = submit(client).json()["id"]
    runs = Runs(connect(settings.database))
    first = runs.claim(run_id, "one")
    second = runs.claim(run_id, "another")
    runs.progress(first, "too late")
    runs.progress(second, "scenario 1 of 8: plain on 4 ranks")
    runs.cancel(run_id)
    runs.progress(second, "too late, too")
    answer = client.get(f"/runs/{run_id}/events")
    assert told(parsed(iter(answer.text.splitlines())))[-2:] == [
        ("progress", "scenario 1 of 8: plain on 4 ranks"),
        ("state", "cancelled"),
    ]


def test_a_stream_is_live_and_ends_with_the_run(start: Callable[..., Any]) -> None:
    service = start("--port", "0", engine="real").ready()
    run = {"strategy": {"kind": "builtin", "name": "naive"}, "world_size": 2, "profile": "quick"}
    run_id = service.http.post("/runs", json=run).json()["id"]
    with service.http.stream("GET", f"/runs/{run_id}/events", timeout=90) as answer:
        events = told(parsed(answer.iter_lines()))
    assert events[:2] == [("state", "queued"), ("state", "running")]
    assert events[-1] == ("state", "finished")
    assert any(kind == "progress" and text.startswith("scenario ") for kind, text in events)
    assert service.end() == 0


def test_it_stops_while_streams_are_open(start: Callable[..., Any]) -> None:
    service = start("--port", "0", LOCKSTEP_SHUTDOWN_S="1").ready()
    held = service.submit(hold=True)
    service.wait(held, "running")
    ends: list[str] = []

    def follow() -> None:
        try:
            with service.http.stream("GET", f"/runs/{held}/events") as stream:
                for _ in stream.iter_lines():
                    pass
            ends.append("closed")
        except httpx.TransportError:
            ends.append("cut off")

    threads = [threading.Thread(target=follow) for _ in range(5)]
    for thread in threads:
        thread.start()
    time.sleep(0.5)
    begun = time.monotonic()
    assert service.end(signal.SIGTERM) == 0
    assert time.monotonic() - begun < 20
    for thread in threads:
        thread.join(10)
    assert len(ends) == 5
    assert "Traceback" not in service.text()
    second = start("--port", "0")
    second.let_go()
    second.ready()
    assert second.wait(held)["attempt"] == 1
