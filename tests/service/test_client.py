"""``lockstep submit``, ``watch`` and ``runs`` against a service in a process of its own."""

from __future__ import annotations

import json
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
import pytest
from typer.testing import CliRunner

from verifier.cli.main import app
from verifier.client import Server
from verifier.errors import UsageError

NOWHERE = "01a1fdf0-defb-7301-98c2-9c925a994b94"


class Command:
    """The command, told where the service is."""

    def __init__(self, service: Any) -> None:
        self._env = {"LOCKSTEP_SERVER": str(service.http.base_url)}

    def __call__(self, *words: str, code: int = 0) -> Any:
        done = CliRunner().invoke(app, words, env=self._env)
        assert done.exit_code == code, done.output
        return done


@pytest.fixture
def service(start: Callable[..., Any]) -> Any:
    return start("--port", "0", LOCKSTEP_TRUST_SOURCE="true").ready()


@pytest.fixture
def lockstep(service: Any) -> Command:
    return Command(service)


def test_submitted_watched_and_told_as_verify_tells(lockstep: Command, service: Any, tmp_path: Path) -> None:
    submitted = lockstep("submit", "bucketed", "-n", "2", "--label", "branch=main", "--option", "seconds=0.3")
    run_id = submitted.stdout.strip()
    assert f"lockstep watch {run_id}" in submitted.stderr
    watched = lockstep("watch", run_id)
    assert "The stub says pass." in watched.stdout
    assert "finished" in watched.stderr
    junit = tmp_path / "junit.xml"
    words = ("submit", "naive", "--option", "verdict=fail", "--wait", "--format", "junit", "--output", str(junit))
    failed = lockstep(*words, code=1)
    assert "queued as" in failed.stderr
    assert junit.read_text().startswith("<?xml")
    lockstep("submit", "naive", "--option", "verdict=unknown", "--wait", code=3)
    errored = lockstep("submit", "naive", "--option", "boom=true", "--wait", code=3)
    assert "RuntimeError: the engine broke" in errored.stderr
    assert service.run(run_id)["labels"] == {"branch": "main"}


def test_listed_shown_compared_cancelled_deleted(lockstep: Command, service: Any) -> None:
    first, second = service.submit(), service.submit(world_size=3, verdict="fail")
    for run_id in (first, second):
        service.wait(run_id)
    held = service.submit(hold=True)  # only now: it keeps its slots
    listed = lockstep("runs", "list").stdout
    assert [line.split()[0] for line in listed.splitlines()[1:]] == [held, second, first]
    assert first not in lockstep("runs", "list", "--verdict", "fail").stdout
    assert json.loads(lockstep("runs", "show", first).stdout)["id"] == first
    compared = lockstep("runs", "compare", first, second).stdout
    assert first[-8:] in compared
    assert "request.world_size" in compared
    assert "fail" in compared
    lockstep("runs", "report", second, code=1)
    assert "is cancelled" in lockstep("runs", "cancel", held).stdout
    lockstep("runs", "delete", first)
    assert "There is no run" in lockstep("runs", "show", first, code=2).stderr


def test_a_file_is_sent_with_what_it_needs(
    lockstep: Command, service: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("mine.py").write_text("from pkg import helper\n")
    Path("pkg").mkdir()
    Path("pkg/helper.py").write_text("x = 1\n")
    run_id = lockstep("submit", "mine.py:Wrapper", "--include", "pkg/helper.py").stdout.strip()
    sent = service.run(run_id)["request"]["strategy"]
    assert sent["entrypoint"] == "mine:Wrapper"
    assert sent["files"] == {"mine.py": "from pkg import helper\n", "pkg/helper.py": "x = 1\n"}
    assert "no file 'theirs.py'" in lockstep("submit", "theirs.py", code=2).stderr
    assert "keeps its path" in lockstep("submit", "mine.py", "--include", "../x.py", code=2).stderr
    assert "a strategy's own file" in lockstep("submit", "bucketed", "--include", "mine.py", code=2).stderr
    assert "NAME=VALUE" in lockstep("submit", "bucketed", "--label", "nonsense", code=2).stderr


def test_the_same_submission_twice(lockstep: Command) -> None:
    words = ("submit", "bucketed", "--idempotency-key", "nightly")
    assert lockstep(*words).stdout == lockstep(*words).stdout


def test_what_the_service_refuses_is_told_in_its_words(lockstep: Command) -> None:
    assert "world_size is 65" in lockstep("submit", "bucketed", "-n", "65", code=2).stderr
    assert "There is no run" in lockstep("watch", NOWHERE, code=2).stderr
    assert "There is no run" in lockstep("runs", "compare", NOWHERE, NOWHERE, code=2).stderr


def test_a_stream_is_taken_up_after_a_restart(start: Callable[..., Any]) -> None:
    first = start("--port", "0").ready()
    port = first.http.base_url.port
    with Server(f"http://127.0.0.1:{port}") as server:
        run_id = first.submit(hold=True)
        events = server.events(run_id)
        seen = [next(events)["text"]]
        while seen[-1] != "running":
            seen.append(next(events)["text"])
        first.end(signal.SIGKILL)
        second = start("--port", str(port))
        second.let_go()
        second.ready()
        seen += [event["text"] for event in events if event["kind"] == "state"]
    assert seen[0] == "queued"
    assert seen.count("queued") == 1
    assert seen[-1] == "finished"


def test_ctrl_c_leaves_the_run_alone(lockstep: Command, service: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    run_id = service.submit(hold=True)

    def interrupted(*_: Any) -> Any:
        raise KeyboardInterrupt

    monkeypatch.setattr(Server, "events", interrupted)
    told = lockstep("watch", run_id, code=130).stderr
    assert f"{run_id} goes on" in told
    assert "ranks are ended" not in told
    assert service.run(run_id)["state"] in ("queued", "running")


def test_no_service_there() -> None:
    done = CliRunner().invoke(app, ["runs", "list", "--server", "http://127.0.0.1:9"])
    assert done.exit_code == 2
    assert "does not answer" in done.stderr
    with pytest.raises(UsageError, match="an address"):
        Server("127.0.0.1:8000")


def answering(*answers: httpx.Response) -> Server:
    remaining = list(answers)
    return Server("http://test", "lsk_key", httpx.MockTransport(lambda _: remaining.pop(0)))


def test_later_is_later_and_no_is_no(monkeypatch: pytest.MonkeyPatch) -> None:
    waited: list[float] = []
    monkeypatch.setattr("verifier.client.time.sleep", waited.append)
    busy, fine = httpx.Response(429, headers={"retry-after": "7"}), httpx.Response(200, json={"id": "1"})
    assert answering(busy, fine).run("1") == {"id": "1"}
    assert waited == [7.0]
    with pytest.raises(UsageError, match="an hour"):
        answering(httpx.Response(429, headers={"retry-after": "3600"}, json={"detail": "in an hour"})).run("1")
    with pytest.raises(UsageError, match="LOCKSTEP_API_KEY"):
        answering(httpx.Response(401, json={"detail": "asks for a key."})).run("1")
    with pytest.raises(UsageError, match="not as a Lockstep service does"):
        answering(httpx.Response(502, text="<html>")).run("1")
