"""The observer on real ranks: results do not change, every operator is recorded, early reads and writes are found.

LS301 judges the ranks' recordings. Legal uses must not raise an alarm, and illegal ones must.
"""

from __future__ import annotations

import time
from collections import Counter

import pytest
import torch
import torch.distributed as dist

from tests.verifier.forked import mine, run_ranks
from tests.verifier.operators import OPERATORS, outcome
from verifier.checks.ls301_collective_order import CHECK as ORDER
from verifier.observe import kernels


def every_case(rank):
    """Run all cases, in the default group and in a group without the last rank, without and with the observer."""
    few = dist.new_group(list(range(rank.size - 1))) if rank.size > 2 else None
    groups = [(dist.group.WORLD, rank.size)] + ([(few, rank.size - 1)] if few is not None else [])
    groups = [(group, n) for group, n in groups if rank.rank < n]
    plain = [[outcome(case, rank.rank, n, group) for case in OPERATORS] for group, n in groups]
    rank.observe()
    for (group, n), expected in zip(groups, plain, strict=True):
        for case, (tensors, _) in zip(OPERATORS, expected, strict=True):
            found, early = outcome(case, rank.rank, n, group)
            for a, b in zip(tensors, found, strict=True):
                assert torch.equal(a, b), f"{case.__name__} of {n}: {a} without, {b} with the observer"
            assert early, f"{case.__name__} of {n}: an early read shows nothing"


@pytest.fixture(scope="module", params=[2, 3])
def every(request, tmp_path_factory):
    return run_ranks(request.param, tmp_path_factory.mktemp("every"), every_case)


def test_results_are_the_same_and_early_reads_show(every):
    assert every.complete


def test_every_operator_was_seen(every):
    for rank in every.ranks:
        seen = {c.op for c in rank.collectives}
        if rank.rank == 0:
            assert seen == (kernels.OPERATORS.keys() - {"send"} - kernels.LATER) | ({"send", *kernels.LATER} & seen)
        assert set(OPERATORS.values()) - {"recv_any_source_"} <= seen
        assert all(c.landed is not None and c.landed >= c.issued for c in rank.collectives)
        assert not any(c.written_in_flight for c in rank.collectives), "a false alarm"
        assert {c.how for c in rank.collectives} == {"waited"}
        assert {(c.phase, c.step, c.micro, c.no_sync) for c in rank.collectives} == {("backward", 0, 0, False)}
        assert "unobserved" not in rank.notes


def test_what_is_written_of_each_call(every):
    size = every.scenario.world_size
    everybody = tuple(range(size))
    calls = [c for c in every.ranks[1].collectives if c.ranks == everybody]
    one = {c.op: c for c in reversed(calls)}
    assert one["allreduce_"].numel == 6
    assert (one["allreduce_"].dtype, one["allreduce_"].num_bytes) == ("float32", 24)
    assert (one["allreduce_"].shapes, one["allreduce_"].dense) == (((6,),), True)
    assert {c.reduce_op for c in calls if c.op == "allreduce_"} == {"SUM", "AVG"}
    assert [c.dense for c in calls if c.op == "allreduce_"].count(False) == 1  # the sparse one
    assert (one["allreduce_coalesced_"].numel, one["allreduce_coalesced_"].shapes) == (8, ((3,), (5,)))
    assert one["broadcast_"].root == one["reduce_"].root == one["scatter_"].root == 1
    assert one["alltoall_"].sends == one["alltoall_"].receives == (2,) * size
    base = [c for c in calls if c.op == "alltoall_base_"]
    assert [c.sends for c in base] == [(2,) * size, tuple(2 * k + 2 for k in range(size))]
    assert [c.receives for c in base] == [(2,) * size, (4,) * size]
    assert one["gather_"].sends == (6, *[0] * (size - 1))
    assert one["send"].peer == 2 % size
    assert (one["recv_"].peer, one["recv_"].tag) == (0, 3)
    anyone = next(c for c in every.ranks[0].collectives if c.op == "recv_any_source_")
    assert (anyone.peer, anyone.tag) == (1, 7)  # the sender is known once the message has arrived


def test_order_holds_in_groups_sub_groups_and_channels(every):
    findings = ORDER.judge(every)
    assert findings.failures == []
    assert findings.comparisons > 40


def legal_uses(rank):
    rank.observe()
    r, n = rank.rank, rank.size
    buffer = torch.ones(8)
    halves = [dist.all_reduce(half, async_op=True) for half in buffer.split(4)]  # two views of one buffer
    for work in halves:
        work.wait()
    leaf = torch.ones(4, requires_grad=True)
    used = leaf * 2
    product = (used * used).sum()
    dist.all_reduce(used.detach())  # shares a version counter with a tensor that autograd has saved
    product.backward()  # neither torch nor the observer counts a collective as a write
    weight = mine(0)
    sending = dist.broadcast(weight, 0, async_op=True)
    total = float(weight.sum()) if r == 0 else 0.0  # the root reads the tensor that it sends
    sending.wait()
    assert r or total == float(weight.sum())
    twice = [dist.isend(weight, (r + 1) % n), dist.isend(weight, (r + 1) % n)]  # one buffer, sent twice
    for _ in twice:
        dist.recv(torch.zeros(6), (r - 1) % n)
    for work in twice:
        work.wait()
    large = torch.ones(400_000)
    dist.all_gather_into_tensor(torch.zeros(400_000 * n), large)
    work = dist.all_reduce(buffer, async_op=True)
    while not work.is_completed():
        time.sleep(0.001)
    work = dist.all_reduce(buffer, async_op=True)
    (found,) = work.get_future().wait()
    assert found.data_ptr() == buffer.data_ptr()
    dist.all_reduce(torch.ones(3, device="meta"))  # as a compiler does to infer shapes: nothing is sent or recorded


def test_legal_uses_do_not_alarm(tmp_path):
    recording = run_ranks(2, tmp_path, legal_uses)
    for rank in recording.ranks:
        assert [c for c in rank.collectives if c.written_in_flight] == []
        assert Counter(c.how for c in rank.collectives)["polled"] == 1
        assert Counter(c.how for c in rank.collectives)["future"] == 1
        assert all(c.numel > 3 for c in rank.collectives)
    assert ORDER.judge(recording).failures == []


def illegal_writes(rank):
    rank.observe()
    r, n = rank.rank, rank.size
    t = torch.ones(8)
    work = dist.all_reduce(t, async_op=True)
    t.mul_(0.5)
    work.wait()
    assert t.eq(n).all(), "the write is lost"
    work = dist.all_reduce(t, async_op=True)
    t.data[3] = 1.0  # bypasses the version counter
    work.wait()
    work = dist.all_reduce(t, async_op=True)
    t.numpy()[5] = 1.0
    work.wait()
    given, gathered = torch.ones(8), torch.zeros(8 * n)
    work = dist.all_gather_into_tensor(gathered, given, async_op=True)
    given.numpy()[:] = 2.0  # out of place: the input is in flight as well
    work.wait()
    sent = torch.ones(500_000)  # a large input
    work = dist.isend(sent, (r + 1) % n)
    sent.zero_()
    dist.recv(torch.zeros(500_000), (r - 1) % n)
    work.wait()
    t = torch.ones(4)
    work = dist.broadcast(t, 0, async_op=True)
    t.add_(1)
    work.wait()


def test_writes_in_flight_are_found_however_they_are_made(tmp_path):
    recording = run_ranks(2, tmp_path, illegal_writes)
    for rank in recording.ranks:
        written = [(c.op, c.written) for c in rank.collectives if c.written_in_flight]
        assert written == [
            *[("allreduce_", "output")] * 3,
            ("_allgather_base_", "input"),
            ("send", "input"),
            ("broadcast_", "input" if rank.rank == 0 else "output"),
        ]
