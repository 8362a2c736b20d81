"""What is deleted is gone everywhere, what is to stay stays, and a crash in between leaves nothing for ever."""

from __future__ import annotations

import os
import time
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
import sqlalchemy as sa

from service import audit
from service.audit import operator
from service.db import AuditRow, EventRow, RunRow, connect
from service.queue import Producer
from service.retention import LEFT_BEHIND_S, Retention
from service.rundir import work_dir
from service.runs import Runs, new_run_id
from service.settings import Settings
from tests.service.test_api import execute, submit

QUEUED = sa.text("SELECT count(*) FROM workflow_status WHERE workflow_uuid = :id")


def finished(client: Any, settings: Settings) -> str:
    run_id = submit(client, world_size=2).json()["id"]
    execute(settings, run_id)
    (settings.runs_dir / run_id / "scenarios").mkdir()
    (settings.runs_dir / run_id / "scenarios" / "journal.jsonl").write_text("{}")
    return run_id


def age(settings: Settings, run_id: str, days: float) -> None:
    with connect(settings.database).begin() as connection:
        ended = {"finished_at": datetime.now(UTC) - timedelta(days=days)}
        connection.execute(sa.update(RunRow).where(RunRow.id == run_id).values(**ended))


@pytest.fixture
def retention(settings: Settings) -> Retention:
    engine = connect(settings.database)
    return Retention(settings, engine, Producer(engine))


def test_a_deleted_run_is_gone_everywhere(client: Any, settings: Settings) -> None:
    run_id, other = finished(client, settings), finished(client, settings)
    assert client.request("DELETE", f"/runs/{run_id}").status_code == 204
    assert client.get(f"/runs/{run_id}").status_code == 404
    assert client.get(f"/runs/{run_id}/report").status_code == 404
    assert client.request("DELETE", f"/runs/{run_id}").status_code == 404
    assert not (settings.runs_dir / run_id).exists()
    assert list(work_dir(settings.runs_dir).iterdir()) == []
    with connect(settings.database).connect() as connection:
        assert connection.scalar(QUEUED, {"id": run_id}) == 0
        assert connection.scalar(sa.select(sa.func.count()).where(EventRow.run_id == run_id)) == 0
    assert client.get(f"/runs/{other}/report").status_code == 200
    actions = [entry["action"] for entry in client.get("/audit").json()["entries"]]
    assert actions == ["run.deleted", "run.submitted", "run.submitted"]


def test_only_what_has_ended_can_be_deleted(client: Any, settings: Settings) -> None:
    run_id = submit(client, world_size=2).json()["id"]
    answer = client.request("DELETE", f"/runs/{run_id}")
    assert (answer.status_code, answer.json()["type"]) == (409, "urn:lockstep:run-not-ended")
    Runs(connect(settings.database)).claim(run_id, "tester")
    assert client.request("DELETE", f"/runs/{run_id}").status_code == 409
    assert client.get(f"/runs/{run_id}").json()["state"] == "running"


def test_runs_and_recordings_have_their_time(client: Any, settings: Settings, retention: Retention) -> None:
    settings.keep_runs_days, settings.keep_recordings_days = 100, 10
    fresh, older, oldest = (finished(client, settings) for _ in range(3))
    age(settings, older, 11)
    age(settings, oldest, 101)
    waiting = submit(client, world_size=2).json()["id"]
    for _ in range(2):
        retention.sweep()
    assert [run["id"] for run in client.get("/runs").json()["runs"]] == [waiting, older, fresh]
    assert client.get(f"/runs/{older}/report").status_code == 200
    assert client.get(f"/runs/{older}/artifacts").json() == {
        "artifacts": [{"path": "report.json", "num_bytes": (settings.runs_dir / older / "report.json").stat().st_size}],
        "recordings": False,
    }
    assert len(client.get(f"/runs/{fresh}/artifacts").json()["artifacts"]) == 2


def test_zero_days_is_for_ever(client: Any, settings: Settings, retention: Retention) -> None:
    settings.keep_runs_days = settings.keep_recordings_days = settings.keep_audit_days = 0
    run_id = finished(client, settings)
    age(settings, run_id, 10_000)
    retention.sweep()
    assert len(client.get(f"/runs/{run_id}/artifacts").json()["artifacts"]) == 2


def test_what_a_crash_left_is_swept_up(client: Any, settings: Settings, retention: Retention) -> None:
    kept = finished(client, settings)
    waiting = submit(client, world_size=2).json()["id"]
    work = work_dir(settings.runs_dir)
    forgotten = [
        settings.runs_dir / new_run_id(),  # its row was deleted, and then its worker was
        work / f"{kept}.1",  # an attempt that was overtaken
        work / f"{kept}.deleted-17",
    ]
    others = [settings.runs_dir / kept, work / f"{waiting}.1", settings.runs_dir / "operator's own"]
    for path in [*forgotten, *others]:
        path.mkdir(exist_ok=True, parents=True)
        (path / "file").touch()
    young = settings.runs_dir / new_run_id()
    young.mkdir()
    for path in [*forgotten, *others]:
        os.utime(path, (time.time() - LEFT_BEHIND_S - 60,) * 2)
    retention.sweep()
    assert [path.exists() for path in forgotten] == [False] * 3
    assert all(path.exists() for path in [*others, young])


def test_the_audit_log_has_its_time(settings: Settings, retention: Retention) -> None:
    engine = connect(settings.database)
    with sa.orm.Session(engine) as session, session.begin():
        for target in ("old", "new"):
            audit.record(session, operator(), "key.added", target)
        session.flush()
        ago = datetime.now(UTC) - timedelta(days=366)
        session.execute(sa.update(AuditRow).where(AuditRow.target == "old").values(at=ago))
    retention.sweep()
    assert [row.target for row in audit.page(engine, 10, None)] == ["new"]
