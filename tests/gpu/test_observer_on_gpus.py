"""The observer over NCCL: the same results with it and without, every operator seen, early reads and writes shown."""

from __future__ import annotations

import time
from collections import Counter

import torch
import torch.distributed as dist

from tests.verifier import operators as on_cpu
from tests.verifier.forked import mine
from tests.verifier.test_delays import Held
from verifier.checks.ls301_collective_order import CHECK as ORDER
from verifier.observe.delay import Delay
from verifier.observe.poison import is_spoilt

NOT_OF_NCCL = {
    on_cpu.all_gather_coalesced,
    on_cpu.monitored_barrier,
    on_cpu.from_anyone,
    on_cpu.sparse_all_reduce,
    on_cpu.ring,  # NCCL has one work for such a batch: ``batches``, below
}
CASES = {case: op for case, op in on_cpu.OPERATORS.items() if case not in NOT_OF_NCCL}


def every_case(rank):
    plain = [on_cpu.outcome(case, rank.rank, rank.size, dist.group.WORLD) for case in CASES]
    rank.observe()
    wrong = []
    for case, (expected, _) in zip(CASES, plain, strict=True):
        found, early = on_cpu.outcome(case, rank.rank, rank.size, dist.group.WORLD)
        if not all(torch.equal(a, b) for a, b in zip(expected, found, strict=True)):
            wrong.append(f"{case.__name__}: {expected} without, {found} with the observer")
        if not early:
            wrong.append(f"{case.__name__}: an early read shows nothing")
    assert not wrong, "\n".join(wrong)


def test_every_operator(on_gpus):
    recording = on_gpus(every_case)
    for rank in recording.ranks:
        assert set(CASES.values()) <= {c.op for c in rank.collectives}
        assert all(c.landed is not None and c.landed >= c.issued for c in rank.collectives)
        assert not any(c.written_in_flight for c in rank.collectives), "a false alarm"
        assert {c.how for c in rank.collectives} == {"waited"}
        assert "unobserved" not in rank.notes
    findings = ORDER.judge(recording)
    assert findings.failures == []
    assert findings.comparisons > 20


def batches(rank):
    rank.observe()
    r, n = rank.rank, rank.size
    tensors = [torch.ones(4), torch.ones(8)]
    with dist._coalescing_manager(device=torch.device("cuda", torch.cuda.current_device()), async_ops=True) as manager:
        for t in tensors:
            dist.all_reduce(t)
    assert all(is_spoilt(t) for t in tensors)
    manager.wait()
    assert all(t.eq(n).all() for t in tensors)
    got = torch.zeros(6)
    sends = [dist.P2POp(dist.isend, mine(r), (r + 1) % n), dist.P2POp(dist.irecv, got, (r - 1) % n)]
    for work in dist.batch_isend_irecv(sends):
        work.wait()
    assert torch.equal(got, mine((r - 1) % n))


def test_batches_that_nccl_launches_as_one(on_gpus):
    for rank in on_gpus(batches).ranks:
        assert {c.how for c in rank.collectives} == {"waited"}


def ways_to_wait(rank):
    rank.observe()
    n = rank.size
    buffer = torch.ones(8)
    work = dist.all_reduce(buffer, async_op=True)
    while not work.is_completed():
        time.sleep(0.001)
    assert buffer.eq(n).all()
    (found,) = dist.all_reduce(buffer, async_op=True).get_future().wait()
    assert found.data_ptr() == buffer.data_ptr()
    assert found.eq(n * n).all()
    kept = dist.all_reduce(buffer, async_op=True)
    assert is_spoilt(buffer)
    torch.cuda.synchronize()  # of all that is under way
    assert buffer.eq(n**3).all()
    del kept
    side = torch.cuda.Stream()
    with torch.cuda.stream(side):
        dist.all_reduce(buffer, async_op=True).wait()
    torch.cuda.current_stream().wait_stream(side)
    assert buffer.eq(n**4).all()
    for _ in range(50):  # memory that a future's stream still reads is not handed out again
        parts = [torch.ones(1 << 16) for _ in range(4)]
        futures = [dist.all_reduce(t, async_op=True).get_future() for t in parts]
        results = [future.wait()[0] for future in futures]
        assert all(bool(t.eq(n).all()) for t in results)


def test_every_way_to_wait_is_one(on_gpus):
    for rank in on_gpus(ways_to_wait).ranks:
        assert not any(c.written_in_flight for c in rank.collectives)
        counts = Counter(c.how for c in rank.collectives)
        assert counts["polled"] == 2
        assert counts["future"] == 201


def illegal_writes(rank):
    rank.observe()
    t = torch.ones(8)
    work = dist.all_reduce(t, async_op=True)
    t.mul_(0.5)
    work.wait()
    assert t.eq(rank.size).all(), "the write is lost"


def test_a_write_in_flight_is_found(on_gpus):
    for rank in on_gpus(illegal_writes).ranks:
        assert [c.written for c in rank.collectives if c.written_in_flight] == ["output"]


def late(rank):
    observer = rank.observe(Held(seed=3, rank=rank.rank, world_size=rank.size, max_ms=100.0))
    tensors = [mine(rank.rank) for _ in range(8)]
    works = [dist.all_reduce(t, async_op=True) for t in tensors]
    for work in works:
        work.wait()
    assert all(torch.equal(t, tensors[0]) for t in tensors)
    observer.delay = Delay(seed=3, rank=rank.rank, world_size=rank.size, max_ms=5.0)
    model = torch.nn.parallel.DistributedDataParallel(
        torch.nn.Sequential(*[torch.nn.Linear(16, 16) for _ in range(6)]), bucket_cap_mb=0.001
    )
    for _ in range(3):
        model(torch.ones(2, 16)).sum().backward()
    assert torch.isfinite(torch.cat([p.grad.flatten() for p in model.parameters()])).all()


def test_delays_are_legal(on_gpus):
    assert ORDER.judge(on_gpus(late)).failures == []
