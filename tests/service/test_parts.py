"""The parts on their own: states, slots, heartbeats, directories."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import sqlalchemy as sa

from service import heartbeat
from service.db import connect
from service.rundir import ERROR, REPORT, Attempt
from service.runs import MAX_ATTEMPTS, Runs, new_run_id
from service.settings import Settings
from service.slots import Slots
from verifier.request import Builtin, Request

REQUEST = Request(strategy=Builtin(name="bucketed"), world_size=2)


@pytest.fixture
def engine(settings: Settings) -> Iterator[sa.Engine]:
    engine = connect(settings.database)
    yield engine
    engine.dispose()


@pytest.fixture
def runs(engine: sa.Engine) -> Runs:
    return Runs(engine)


def added(runs: Runs) -> str:
    return runs.add(REQUEST, {}, 0, lambda _session, _row: None).id


# --- states


def test_a_run_that_could_not_be_queued_is_not_stored(runs: Runs) -> None:
    with pytest.raises(ZeroDivisionError):
        runs.add(REQUEST, {}, 0, lambda _session, _row: 1 / 0)  # type: ignore[arg-type,return-value]
    assert runs.page(10, None, None, None) == []


def test_a_claim_holds_the_request_and_counts(runs: Runs) -> None:
    run_id = added(runs)
    claim = runs.claim(run_id, "a")
    assert claim is not None
    assert (claim.attempt, claim.request) == (1, REQUEST)
    row = runs.get(run_id)
    assert row is not None
    assert (row.state, row.executor_id) == ("running", "a")
    assert row.created_at.tzinfo is not None


def test_who_was_given_up_for_dead_cannot_end_the_run(runs: Runs) -> None:
    run_id = added(runs)
    presumed_dead, successor = runs.claim(run_id, "a"), runs.claim(run_id, "b")
    assert presumed_dead is not None
    assert successor is not None
    assert not runs.finish(presumed_dead, "fail", "late")
    assert not runs.fail(presumed_dead, "late")
    assert not runs.release(presumed_dead)
    assert runs.finish(successor, "pass", "in time")
    assert not runs.finish(successor, "fail", "twice")
    row = runs.get(run_id)
    assert row is not None
    assert (row.state, row.verdict, row.summary) == ("finished", "pass", "in time")
    assert runs.claim(run_id, "c") is None


def test_a_run_that_kills_its_workers_is_given_up(runs: Runs) -> None:
    run_id = added(runs)
    for attempt in range(MAX_ATTEMPTS):
        claim = runs.claim(run_id, f"worker {attempt}")
        assert claim is not None
    assert runs.claim(run_id, "one more") is None
    row = runs.get(run_id)
    assert row is not None
    assert (row.state, row.verdict) == ("errored", None)
    assert "not tried again" in (row.error or "")


def test_being_stopped_again_and_again_gives_nothing_up(runs: Runs) -> None:
    run_id = added(runs)
    for attempt in range(MAX_ATTEMPTS * 2):
        claim = runs.claim(run_id, f"worker {attempt}")
        assert claim is not None
        assert runs.release(claim)
    assert runs.unfinished() == [run_id]


def test_ids_sort_by_time() -> None:
    ids = [new_run_id() for _ in range(200)]
    assert len(set(ids)) == 200
    assert [run_id[:13] for run_id in ids] == sorted(run_id[:13] for run_id in ids)
    assert all(run_id[14] == "7" and run_id[19] in "89ab" for run_id in ids)


def test_the_database_refuses_a_verdict_without_a_finished_run(engine: sa.Engine, runs: Runs) -> None:
    run_id = added(runs)
    with pytest.raises(sa.exc.IntegrityError), engine.begin() as connection:
        connection.execute(sa.text("UPDATE runs SET verdict = 'pass' WHERE id = :id"), {"id": run_id})


# --- slots


def test_slots_weigh_and_keep_the_order() -> None:
    async def scene() -> None:
        slots, order = Slots(4), []

        async def use(name: str, wanted: int, leave: asyncio.Event) -> None:
            async with slots.take(wanted):
                order.append(name)
                await leave.wait()

        async def settle() -> None:
            for _ in range(5):
                await asyncio.sleep(0)

        gates = {name: asyncio.Event() for name in ("two", "one", "huge", "late")}
        sizes = {"two": 2, "one": 1, "huge": 64, "late": 1}
        tasks = [asyncio.create_task(use(name, sizes[name], gates[name])) for name in gates]
        await settle()
        assert order == ["two", "one"], "one slot is free, but the huge one is next in line"
        gates["two"].set()
        await settle()
        assert order == ["two", "one"]
        gates["one"].set()
        await settle()
        assert order == ["two", "one", "huge"]
        assert slots.free == 0
        gates["huge"].set()
        gates["late"].set()
        await asyncio.gather(*tasks)
        assert order[-1] == "late"
        assert slots.free == 4

    asyncio.run(scene())


def test_slots_survive_waiters_that_give_up() -> None:
    async def scene() -> None:
        slots = Slots(2)

        async def use(wanted: int) -> None:
            async with slots.take(wanted):
                await asyncio.sleep(0)

        async with slots.take(2):
            first, second = asyncio.create_task(use(2)), asyncio.create_task(use(1))
            await asyncio.sleep(0)
            first.cancel()
            await asyncio.sleep(0)
        await asyncio.wait_for(second, 5)
        async with slots.take(2):
            third = asyncio.create_task(use(1))
            await asyncio.sleep(0)
        third.cancel()  # its turn has just come
        await asyncio.gather(third, return_exceptions=True)
        assert slots.free == 2

    asyncio.run(scene())


# --- heartbeats


def test_a_process_of_this_machine_is_looked_up_not_waited_for(engine: sa.Engine) -> None:
    code = "from service.heartbeat import this_process; print(this_process(), flush=True); input()"
    child = subprocess.Popen(
        [sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
        cwd=Path(__file__).parents[2],
    )  # fmt: skip
    assert child.stdout is not None
    name = child.stdout.readline().strip()
    assert heartbeat.is_running(name)
    child.kill()
    child.wait()
    assert heartbeat.is_running(name) is False
    assert heartbeat.is_running(heartbeat.this_process())
    reused = heartbeat.this_process()
    assert reused is not None
    assert heartbeat.is_running(reused + "0") is False, "the same pid, another start time"
    assert heartbeat.is_running("another machine/1/1") is None


def test_elsewhere_only_silence_counts(engine: sa.Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    heartbeat.beat(engine, "here", 1)
    monkeypatch.setattr(heartbeat, "this_process", lambda: "another machine/1/1")
    heartbeat.beat(engine, "fresh", 1)
    heartbeat.beat(engine, "silent", 1)
    with engine.begin() as connection:
        connection.execute(sa.text("UPDATE executors SET beat_at = beat_at - 31 WHERE id <> 'fresh'"))
    assert heartbeat.alive(engine) == {"here", "fresh"}, "the one here is busy, but it exists"
    heartbeat.leave(engine, "fresh")
    assert heartbeat.alive(engine) == {"here"}


def test_old_heartbeats_are_forgotten(engine: sa.Engine) -> None:
    for name in ("old", "new"):
        heartbeat.beat(engine, name, 1)
    with engine.begin() as connection:
        connection.execute(sa.text("UPDATE executors SET beat_at = beat_at - 3700 WHERE id = 'old'"))
    heartbeat.forget_old(engine)
    assert heartbeat.alive(engine) == {"new"}


def test_the_workers_health_check(engine: sa.Engine, settings: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LOCKSTEP_DATA_DIR", str(settings.data_dir))
    assert heartbeat.main() == 1
    heartbeat.beat(engine, "here", 1)
    assert heartbeat.main() == 0


# --- directories


def test_a_directory_appears_whole(tmp_path: Path) -> None:
    attempt = Attempt(tmp_path, "run", 1)
    (attempt.begin() / "recording").write_text("data")
    assert not (tmp_path / "run").exists()
    attempt.publish(REPORT, "{}")
    assert sorted(path.name for path in (tmp_path / "run").iterdir()) == ["recording", REPORT]
    assert list((tmp_path / ".work").iterdir()) == []


def test_a_published_report_is_not_replaced_but_an_errors_traces_are(tmp_path: Path) -> None:
    for number, (name, text) in enumerate([(ERROR, "first"), (REPORT, "second"), (REPORT, "third")]):
        attempt = Attempt(tmp_path, "run", number)
        attempt.begin()
        attempt.publish(name, text)
    assert [path.name for path in (tmp_path / "run").iterdir()] == [REPORT]
    assert (tmp_path / "run" / REPORT).read_text() == "second"


def test_what_a_dead_attempt_left_is_cleared(tmp_path: Path) -> None:
    (Attempt(tmp_path, "run", 1).begin() / "half").touch()
    other = Attempt(tmp_path, "other", 1).begin()
    assert list(Attempt(tmp_path, "run", 2).begin().iterdir()) == []
    assert sorted(path.name for path in (tmp_path / ".work").iterdir()) == [other.name, "run.2"]


def test_a_launcher_that_was_given_back_is_not_ended_by_a_late_cancellation(engine_stub: None) -> None:
    from service.warm import WarmLaunchers

    warm = WarmLaunchers(1)
    request = Request(strategy=Builtin(name="bucketed"), world_size=2)
    with warm.lend(request) as first:
        pass
    first.cancel()
    with warm.lend(request) as second:
        assert second.launcher is first.launcher
        assert not second.launcher.closed
        second.cancel()
        assert second.launcher.closed
    with warm.lend(request) as third:
        assert third.launcher is not first.launcher
    warm.close()
    assert third.launcher.closed
