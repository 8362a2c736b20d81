"""LS301, the judge of order, on recordings made by hand."""

from __future__ import annotations

from dataclasses import replace

import pytest

from verifier import reading
from verifier.check import Findings
from verifier.checks.ls301_collective_order import CHECK as ORDER
from verifier.recording import Collective
from verifier.request import Builtin
from verifier.scenario import Scenario


def call(seq, op="allreduce_", *, ranks=(0, 1), numel=4, landed=True, group="0", **fields):
    return Collective(
        seq=seq, op=op, group=group, phase="backward", step=0, dtype="float32", numel=numel, num_bytes=4 * numel,
        reduce_op=None, root=None, issued=0.0, landed=1.0 if landed else None, written_in_flight=False, contents=None,
        ranks=ranks, **fields,
    )  # fmt: skip


def judged(tmp_path, *ranks, outcomes=None, backend="gloo") -> Findings:
    Scenario(
        name="t", situation="t", workload="exact", strategy=Builtin(name="x"), world_size=len(ranks), backend=backend
    ).save(tmp_path)
    recording = reading.read(tmp_path)
    for rank, calls in zip(recording.ranks, ranks, strict=True):
        rank.collectives = list(calls)
        status = (outcomes or ["completed"] * len(ranks))[rank.rank]
        rank.outcome = None if status == "hung" else {"status": status, "detail": "x"}
    return ORDER.judge(recording)


def test_groups_of_one_name_and_other_members_are_not_compared(tmp_path):
    here = [call(0, ranks=(0, 1), group="mesh")]
    there = [call(0, "broadcast_", ranks=(2, 3), group="mesh"), call(1, ranks=(2, 3), group="mesh")]
    assert judged(tmp_path, here, here, there, there).failures == []
    assert len(judged(tmp_path, here, [], there, there).failures) == 1  # rank 1 is a member, but issued nothing


def test_a_rank_that_finished_while_another_waits_is_a_failure(tmp_path):
    stuck = [call(0), call(1, landed=False)]
    (failure,) = judged(tmp_path, stuck, [call(0)], outcomes=["hung", "completed"]).failures
    assert failure.explanation == (
        "rank 1 finished, and rank 0 waits in allreduce of 4 float32, number 1, which rank 1 never issued"
    )
    for ended in ("raised", "hung"):  # it may have been about to issue it
        assert judged(tmp_path, stuck, [call(0)], outcomes=["hung", ended]).failures == []


@pytest.mark.parametrize("numel", [1, 1000])
@pytest.mark.parametrize("apart", [True, False])
@pytest.mark.parametrize("ended", [True, False])
def test_a_watch_may_look_once_more_in_a_group_of_its_own(tmp_path, numel, apart, ended):
    """A thread's call that no other rank joins is no mistake if it carries a few numbers, and no rank waits for it."""
    watch = {"group": "1" if apart else "0", "numel": numel}
    ranks = [call(0), call(1, **watch)], [call(0), call(1, **watch), call(2, **watch, landed=False)]
    found = judged(tmp_path, *ranks, outcomes=["completed", "completed" if ended else "hung"])
    assert bool(found.failures) is not (numel == 1 and apart and ended)


def test_a_mismatch_is_one_also_where_ranks_did_not_end(tmp_path):
    findings = judged(tmp_path, [call(0), call(1)], [call(0), call(1, "broadcast_")], outcomes=["hung", "hung"])
    assert [f.cause for f in findings.failures] == ["collectives_differ"]


def test_messages_are_matched_by_channel(tmp_path):
    def send(seq, to, tag=0, numel=4):
        return call(seq, "send", peer=to, tag=tag, numel=numel)

    def receive(seq, source, tag=0, numel=4, dtype="float32"):
        return replace(call(seq, "recv_", peer=source, tag=tag, numel=numel), dtype=dtype)

    there = [send(0, 1), send(1, 1, tag=5, numel=8), receive(2, 1)]
    assert judged(tmp_path, there, [send(0, 0), receive(1, 0, tag=5, numel=8), receive(2, 0)]).failures == []
    (failure,) = judged(tmp_path, there, [send(0, 0), receive(1, 0, tag=5, numel=7), receive(2, 0)]).failures
    assert "8 float32, and is received as 7" in failure.explanation
    roomy = [send(0, 0), receive(1, 0, tag=5, numel=9), receive(2, 0)]
    assert judged(tmp_path, there, roomy).failures == []  # gloo delivers it, as MPI does; NCCL has no such rule
    (failure,) = judged(tmp_path, there, roomy, backend="nccl").failures
    assert "8 float32, and is received as 9" in failure.explanation
    wider = [send(0, 0), receive(1, 0, tag=5, numel=9, dtype="float64"), receive(2, 0)]
    (failure,) = judged(tmp_path, there, wider).failures
    assert "8 float32, and is received as 9 float64" in failure.explanation
    surplus = [send(0, 0), receive(1, 0)]
    (failure,) = judged(tmp_path, there, surplus).failures
    assert "has no counterpart on rank 1" in failure.explanation
    assert judged(tmp_path, there, surplus, outcomes=["hung", "completed"]).failures == []


def test_uneven_exchanges_are_compared_pair_by_pair(tmp_path):
    def exchange(sends, receives):
        return [call(0, "alltoall_base_", numel=sum(sends), sends=sends, receives=receives)]

    assert judged(tmp_path, exchange((1, 2), (1, 3)), exchange((3, 4), (2, 4))).failures == []
    (failure,) = judged(tmp_path, exchange((1, 2), (1, 3)), exchange((3, 4), (5, 4))).failures
    assert "rank 0 sends 2 elements to rank 1, which expects 5" in failure.explanation
