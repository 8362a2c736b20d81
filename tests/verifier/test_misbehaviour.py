"""Strategies that raise, die, hang or leave processes behind: reported, explained, and nothing is left running."""

from __future__ import annotations

import time

import psutil
import pytest

from tests.verifier.conftest import ranks


def test_raises_on_import(lockstep, misbehaving):
    report = lockstep.verify(misbehaving("", "from not_there import wrap\n"), world_size=2)
    assert report.verdict == "unknown"
    detail = ranks(report)[0].detail
    assert "on import" in detail
    assert "No module named 'not_there'" in detail
    assert "verifier/" not in detail
    assert any("not run" in problem for problem in report.problems)


def test_has_no_such_attribute(lockstep, misbehaving):
    """An attribute that the text cannot show to be missing; what it can show is refused earlier (``test_defined``)."""
    source = "def wrap(model):\n    return model\nglobals()['other'] = wrap\n"
    report = lockstep.verify(misbehaving("", source) + ":wrapp", world_size=2)
    assert report.verdict == "unknown"
    assert "no attribute 'wrapp'; it has: wrap, other" in ranks(report)[0].detail


def test_raises_in_wrap(lockstep, misbehaving):
    source = "def helper(model):\n    raise RuntimeError('I cannot')\ndef wrap(model):\n    return helper(model)\n"
    report = lockstep.verify(misbehaving("", source), world_size=2)
    assert report.verdict == "unknown"
    detail = ranks(report)[1].detail
    assert "in helper" in detail
    assert "RuntimeError: I cannot" in detail
    assert "verifier/" not in detail


def test_returns_something_that_is_no_model(lockstep, misbehaving):
    report = lockstep.verify(misbehaving("", "def wrap(model):\n    return 42\n"), world_size=2)
    assert report.verdict == "unknown"
    assert "returned a int object, which cannot be called" in ranks(report)[0].detail


def test_is_told_an_option_it_does_not_know(lockstep):
    report = lockstep.verify("naive", world_size=2, options={"bucket_cap_gb": 1})
    assert report.verdict == "unknown"
    assert "bucket_cap_gb" in ranks(report)[0].detail


@pytest.mark.parametrize(
    ("act", "told"),
    [
        ("if rank == 1: os._exit(7)", "exit code 7"),
        ("if rank == 1: os.kill(os.getpid(), signal.SIGKILL)", "killed by SIGKILL"),
        ("if rank == 1: os.kill(os.getpid(), signal.SIGSEGV)", "killed by SIGSEGV"),
        ("if rank == 1: sys.exit(0)", "SystemExit"),
    ],
)
def test_a_rank_that_ends_early_is_named(lockstep, misbehaving, act, told):
    report = lockstep.verify(misbehaving(act), world_size=3)
    assert report.verdict == "unknown"
    assert told in ranks(report)[1].detail
    assert any("rank 1" in problem for problem in report.problems)
    assert all(rank.detail for rank in ranks(report).values())


def test_a_rank_that_hangs_is_named_with_every_stack(lockstep, misbehaving):
    begun = time.monotonic()
    report = lockstep.verify(misbehaving("if rank == 1: time.sleep(1e6)"), world_size=3, timeout_s=8)
    assert time.monotonic() - begun < 15
    assert report.verdict == "fail"
    assert {rank.status for rank in ranks(report).values()} == {"hung"}
    assert all("in sync_gradients" in rank.stack for rank in ranks(report).values())
    assert "allreduce" in ranks(report)[0].detail
    assert not any("verifier/" in rank.stack for rank in ranks(report).values())


def test_sizes_that_do_not_match_are_a_failure_and_not_a_crash(lockstep, misbehaving):
    """gloo aborts the process here; the recordings of both ranks say why."""
    act = "if rank == 1: dist.all_reduce(torch.ones(5))"
    report = lockstep.verify(misbehaving(act), world_size=2)
    assert report.verdict == "fail"
    order = next(check for check in report.checks if check.code == "LS301")
    assert order.failures[0].cause == "collectives_differ"
    assert order.failures[0].observed == "allreduce SUM of 5 float32"


def test_a_collective_too_many_at_the_end_is_a_failure(lockstep, misbehaving):
    act = "if rank == 1: self.extra = dist.all_reduce(torch.ones(6, 8), async_op=True)"
    report = lockstep.verify(misbehaving(act), world_size=2, timeout_s=20)
    assert report.verdict == "fail"


def left_running(*command):
    """The processes that still run ``command``, after a short time in which they may end."""
    deadline = time.monotonic() + 5
    while True:
        found = [p for p in psutil.process_iter(["cmdline", "status"]) if p.info["cmdline"] == list(command)]
        found = [p for p in found if p.info["status"] != psutil.STATUS_ZOMBIE]
        if not found or time.monotonic() > deadline:
            return found
        time.sleep(0.05)


DAEMON = """
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        os.setsid()
        os.execvp("sleep", ["sleep", "98766"])
    os._exit(0)
"""


@pytest.mark.parametrize(
    ("act", "seconds"), [("self.sleeper = subprocess.Popen(['sleep', '98765'])", "98765"), (DAEMON.strip(), "98766")]
)
def test_processes_that_a_strategy_starts_are_ended_with_it(lockstep, misbehaving, act, seconds):
    lockstep.verify(misbehaving(act), world_size=2).assert_pass()
    assert not left_running("sleep", seconds)


def test_a_copy_of_a_rank_writes_nothing(lockstep, misbehaving):
    lockstep.verify(misbehaving("os.fork()"), world_size=2).assert_pass()


def test_what_a_rank_prints_does_not_reach_the_result(lockstep, misbehaving):
    report = lockstep.verify(misbehaving("print('hello from', rank)"), world_size=2)
    report.assert_pass()
    plain = [scenario.name for scenario in report.scenarios].index("plain")  # the first scenario in its processes
    assert "hello from 1" in ranks(report, plain)[1].output
    assert "hello from 0" not in ranks(report, plain)[1].output


@pytest.mark.parametrize("act", ["os._exit(1)", "os.kill(os.getppid(), signal.SIGKILL); time.sleep(60)"])
def test_one_launcher_survives_all_of_this(lockstep, misbehaving, act):
    report = lockstep.verify(misbehaving(f"if rank == 0: {act}"), world_size=2)
    assert report.verdict == "unknown"
    assert any("exit code 1" in p or "killed by SIGKILL" in p for p in report.problems), report.problems
    lockstep.verify("bucketed", world_size=2).assert_pass()


def test_source_needs_trust_and_stays_with_its_recording(lockstep, tmp_path):
    from verifier import engine
    from verifier.errors import UsageError
    from verifier.request import Request, Source

    text = "from helper import wrap\n"
    files = {"mine.py": text, "helper.py": "from ddp_core.strategies.flat import wrap\n"}
    source = Source(files=files, entrypoint="mine:wrap")
    with pytest.raises(UsageError, match="--trust"):
        engine.plan(Request(strategy=source, launcher="local"))
    report = engine.run(
        Request(strategy=source, world_size=2, profile="quick", trust=True),
        tmp_path / "run",
        launcher=lockstep.launcher,
    )
    report.assert_pass()
    assert (tmp_path / "run/scenarios/plain/subject/rank1/source/helper.py").exists()
    assert "files" not in report.strategy
