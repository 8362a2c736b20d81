"""LS601 fails for ranks that hang, and names which waits for which; ranks that raise or die are no failure of it."""

from __future__ import annotations

import pytest

from tests.verifier.conftest import WRAPPER

QUARTER_S = 8  # the time limit: if no rank does anything, it counts as a hang after a quarter of it


def liveness(report):
    return next(check for check in report.checks if check.code == "LS601")


def hang(lockstep, misbehaving, act, world_size=3, source=WRAPPER):
    report = lockstep.verify(misbehaving(act, source), world_size=world_size, timeout_s=QUARTER_S)
    assert report.verdict == "fail"
    assert {check.code for check in report.checks if check.verdict == "fail"} == {"LS601"}
    (failure,) = liveness(report).failures
    assert failure.scenario == report.scenarios[0].name
    return failure


def test_a_rank_that_sleeps(lockstep, misbehaving):
    failure = hang(lockstep, misbehaving, "if rank == 1: time.sleep(1e6)")
    assert (failure.cause, failure.rank) == ("hang", 1)
    assert failure.explanation.startswith("rank 1 came out of broadcast")
    assert "does not go on in the strategy's own code" in failure.explanation
    assert "rank 0 waits in allreduce" in failure.explanation
    assert "rank 2 waits in allreduce" in failure.explanation


def test_a_rank_that_sleeps_before_its_first_collective(lockstep, misbehaving):
    source = "import time\nimport torch.distributed as dist\ndef wrap(model):\n    time.sleep(dist.get_rank() * 1e6)\n"
    failure = hang(lockstep, misbehaving, "", 2, source + "    dist.barrier()\n    return model\n")
    assert (failure.cause, failure.rank) == ("hang", 1)
    assert "had not reached its first collective" in failure.explanation


GROUPS = "self.groups = self.groups if hasattr(self, 'groups') else [dist.new_group(), dist.new_group()]"


def test_two_groups_in_another_order(lockstep, misbehaving):
    act = f"{GROUPS}\nfor place in (0, 1) if rank else (1, 0): dist.barrier(group=self.groups[place])"
    failure = hang(lockstep, misbehaving, act, 2)
    assert (failure.cause, failure.rank, failure.step, failure.bucket) == ("deadlock", 0, 0, 0)
    assert failure.observed == "ranks 0, 1 wait for one another"


def test_a_collective_that_others_never_issue(lockstep, misbehaving):
    """In a separate group, so that the other ranks continue until they wait for this rank in the default group."""
    failure = hang(lockstep, misbehaving, f"{GROUPS}\nif rank == 1: dist.barrier(group=self.groups[0])")
    assert failure.cause == "deadlock"
    assert "waits in barrier" in failure.explanation
    assert "waits in allreduce" in failure.explanation


def test_a_message_that_is_never_sent(lockstep, misbehaving):
    failure = hang(lockstep, misbehaving, "if rank == 1: dist.recv(torch.ones(3), 0)", 2)
    assert failure.cause == "deadlock"
    assert "rank 1 waits in recv of 3 float32 from rank 0" in failure.explanation


@pytest.mark.parametrize(
    ("act", "why"),
    [
        ("if rank == 1: os._exit(3)", "rank 1 died, which is no hang"),
        ("assert rank != 1", "rank 1 raised, which is no hang"),
    ],
)
def test_one_that_raised_or_died_is_no_hang(lockstep, misbehaving, act, why):
    report = lockstep.verify(misbehaving(act), world_size=3)
    assert report.verdict == "unknown"
    assert liveness(report).verdict == "unknown"
    assert why in liveness(report).why


def test_whoever_comes_to_the_end_is_alive(lockstep):
    check = liveness(lockstep.verify("bucketed", world_size=2))
    assert check.verdict == "pass"
    assert check.comparisons >= 2
