"""A storm: 60 runs, 12 processes killed with -9 in the middle of it, runs cancelled at any moment; on both databases.

Afterwards every run is in a final state, none has ended twice, no cancelled one came back, no slot is lost and no
process is left. ``LOCKSTEP_STORMS=8`` has eight storms on each, every one with another seed; one, by itself.
"""

from __future__ import annotations

import os
import random
import signal
import sqlite3
import time
from collections import Counter
from collections.abc import Callable
from typing import Any

import httpx
import pytest
import sqlalchemy as sa

from service.db import EventRow, connect
from service.settings import Settings

NUM_RUNS, NUM_KILLS, NUM_CANCELS = 60, 12, 9
SEEDS = range(int(os.environ.get("LOCKSTEP_STORMS", "1")))
FINAL = {"finished", "cancelled"}


class Storm:
    """An API and two workers, of which any may die at any moment and comes back at once."""

    def __init__(self, start: Callable[..., Any], seed: int, **environment: str) -> None:
        self._draw, self._start, self._environment = random.Random(seed), start, environment
        self.api = start("--port", "0", "--no-worker", **environment).ready()
        self._port = str(self.api.http.base_url.port)
        self.workers = [self._worker() for _ in range(2)]
        self.cancelled: set[str] = set()
        self.runs: list[str] = []

    def _worker(self) -> Any:
        return self._start("--worker-only", **self._environment)

    def ask(self, method: str, path: str, **more: Any) -> httpx.Response:
        """As a client does that tries again: the API itself may be away."""
        deadline = time.monotonic() + 60
        while True:
            try:
                return self.api.http.request(method, path, **more)
            except httpx.TransportError:
                assert time.monotonic() < deadline
                time.sleep(0.05)

    def blow(self) -> None:
        """Submit, kill and cancel, in an order that the seed draws."""
        deeds = [self.submit] * NUM_RUNS + [self.kill] * NUM_KILLS + [self.cancel] * NUM_CANCELS
        self._draw.shuffle(deeds)
        for deed in deeds:
            deed()
            time.sleep(self._draw.uniform(0, 0.15))

    def submit(self) -> None:
        options = {"seconds": self._draw.choice([0, 0.02, 0.1, 0.3]), "verdict": self._draw.choice(["pass", "fail"])}
        body = {
            "strategy": {"kind": "builtin", "name": "bucketed", "options": options},
            "world_size": self._draw.randint(1, 4),
        }
        # Named, so that a submission whose answer was lost is not two.
        answer = self.ask("POST", "/runs", json=body, headers={"Idempotency-Key": f"storm-{len(self.runs)}"})
        assert answer.status_code == 202, answer.text
        self.runs.append(answer.json()["id"])

    def cancel(self) -> None:
        if self.runs:
            run_id = self._draw.choice(self.runs[-5:])
            if self.ask("POST", f"/runs/{run_id}/cancel").status_code == 200:
                self.cancelled.add(run_id)

    def kill(self) -> None:
        victim = self._draw.randrange(4)
        if victim == 3:
            self.api.end(signal.SIGKILL)
            again = self._start("--port", self._port, "--no-worker", **self._environment)
            self.api = again.ready()
        else:
            place = victim % 2
            self.workers[place].end(signal.SIGKILL)
            self.workers[place] = self._worker()

    def settle(self) -> dict[str, dict[str, Any]]:
        """Every run as it ended."""
        found: dict[str, dict[str, Any]] = {}

        def all_ended() -> bool:
            for run_id in self.runs:
                if run_id not in found and (run := self.api.run(run_id))["state"] not in ("queued", "running"):
                    found[run_id] = run
            return len(found) == len(self.runs)

        self.api.until(all_ended, "all runs to end")
        return found


def ends(settings: Settings) -> Counter[str]:
    """How often each run came to an end, by its events."""
    engine = connect(settings.database)
    final = sa.select(EventRow.run_id).where(EventRow.text.in_((*FINAL, "errored")), EventRow.kind == "state")
    with engine.connect() as connection:
        found = Counter(connection.scalars(final))
    engine.dispose()
    return found


def check(storm: Storm, settings: Settings) -> None:
    ended = storm.settle()
    assert len(ended) == len(set(storm.runs)) == NUM_RUNS
    for run_id, run in ended.items():
        assert run["state"] in FINAL, run
        assert (run["state"] == "cancelled") == (run_id in storm.cancelled), run
        published = (settings.runs_dir / run_id / "report.json").exists()
        assert published or run["state"] == "cancelled"
        if run["state"] == "finished":
            assert run["verdict"] == run["request"]["strategy"]["options"]["verdict"]
            assert storm.ask("GET", f"/runs/{run_id}/report").json()["verdict"] == run["verdict"]
    assert ends(settings) == dict.fromkeys(storm.runs, 1)
    for worker in storm.workers:  # all four slots of both are there: eight runs of one rank run at once
        worker.until(lambda worker=worker: "Lockstep worker" in worker.text(), "it to greet")
    small = [storm.api.submit(world_size=1, hold=True) for _ in range(8)]
    for run_id in small:
        storm.api.wait(run_id, "running")
    storm.api.let_go()
    for run_id in small:
        storm.api.wait(run_id)
    for process in (*storm.workers, storm.api):
        assert process.end() == 0
        assert "Traceback" not in process.text()


@pytest.mark.parametrize("seed", SEEDS)
def test_on_sqlite(start: Callable[..., Any], seed: int) -> None:
    storm = Storm(start, seed)
    storm.blow()
    settings = Settings(data_dir=storm.api.data_dir)
    check(storm, settings)
    with sqlite3.connect(settings.data_dir / "lockstep.sqlite") as database:
        assert database.execute("PRAGMA integrity_check").fetchone() == ("ok",)


@pytest.mark.parametrize("seed", SEEDS)
def test_on_postgres(start: Callable[..., Any], url: str, seed: int) -> None:
    storm = Storm(start, seed, LOCKSTEP_DATABASE_URL=url)
    storm.blow()
    check(storm, Settings(data_dir=storm.api.data_dir, database_url=url))
