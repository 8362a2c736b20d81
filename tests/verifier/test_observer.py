"""The observer on real ranks: results stay what they are, every operator is written down, early reads and writes show.

Special here: ranks are forked from the test process, and each runs its cases twice, first without an observer and then
with one, so that both results come from the same process group. What the ranks wrote is then judged by LS301.
"""

from __future__ import annotations

import multiprocessing
import os
import time
import traceback
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
import torch
import torch.distributed as dist
import torch.distributed._functional_collectives as functional

from verifier.check import Findings
from verifier.checks.ls301_collective_order import CHECK as ORDER
from verifier.errors import OurFault
from verifier.journal import Journal
from verifier.marker import holds_poison
from verifier.observe import kernels
from verifier.observe.delay import Delay
from verifier.observe.observer import POISON_FLOAT32, Observer
from verifier.observe.poison import digest, is_spoilt, overlaps, spoil
from verifier.recording import Collective, Recording
from verifier.request import Builtin
from verifier.scenario import Scenario

LIMIT_S = 60.0
ROUNDS = 12


class Rank:
    """One forked process's view: its number, how many there are, and where its journal goes."""

    def __init__(self, rank: int, size: int, folder: Path) -> None:
        self.rank, self.size, self.folder = rank, size, folder
        self.journal: Journal | None = None

    def observe(self, delay: Delay | None = None) -> Observer:
        self.journal = Journal(self.folder / "subject" / f"rank{self.rank}")
        observer = Observer(
            self.journal, self.folder / f"board{self.rank}", poison=True, keep_payloads=False, delay=delay
        )
        kernels.install(observer)
        observer.phase, observer.step, observer.micro = "backward", 0, 0
        return observer


def join_over_gloo(rank, store):
    dist.init_process_group("gloo", store=store, rank=rank.rank, world_size=rank.size)


def run_ranks(size, folder, body, *, join=join_over_gloo, start="fork", limit_s=LIMIT_S, **fields):
    """Start ``size`` ranks, run ``body(rank)`` on each, and load what they wrote. Any error fails the test."""
    scenario = Scenario(
        name="t", situation="t", workload="exact", strategy=Builtin(name="naive"), world_size=size, **fields
    )
    scenario.save(folder)
    started = multiprocessing.get_context(start)
    processes = [started.Process(target=_rank, args=(Rank(r, size, folder), body, join)) for r in range(size)]
    for process in processes:
        process.start()
    end = time.monotonic() + limit_s
    for process in processes:
        process.join(max(end - time.monotonic(), 0.1))
    hung = [number for number, process in enumerate(processes) if process.is_alive()]
    for process in processes:
        process.kill()
    errors = [path.read_text() for path in sorted(folder.glob("error*"))]
    assert not errors, "\n".join(errors)
    boards = [folder / f"board{r}" for r in hung]
    assert not hung, f"ranks {hung} hang: {[b.read_bytes().rstrip(bytes(1)) for b in boards if b.exists()]}"
    return Recording.load(folder)


def _rank(rank, body, join):
    try:
        torch.set_num_threads(1)
        store = dist.FileStore(str(rank.folder / "store"), rank.size)
        join(rank, store)
        body(rank)
        if rank.journal is not None:
            rank.journal.outcome("completed")
        store.add("done", 1)
        while store.add("done", 0) < rank.size and not list(rank.folder.glob("error*")):
            time.sleep(0.01)
    except BaseException:
        (rank.folder / f"error{rank.rank}").write_text(f"rank {rank.rank}:\n{traceback.format_exc()}")
    finally:
        os._exit(0)


# The cases: each calls one operator in a group and returns the Work, or None, and the tensors that hold the result.


def mine(rank, numel=6, dtype=torch.float32):
    return (torch.arange(numel) + 10 * rank + 1).to(dtype)


def all_reduce(r, n, group):
    t = mine(r)
    return dist.all_reduce(t, group=group, async_op=True), [t]


def all_reduce_average_of_doubles(r, n, group):
    t = mine(r, dtype=torch.float64)
    return dist.all_reduce(t, dist.ReduceOp.AVG, group=group, async_op=True), [t]


def all_reduce_bfloat16(r, n, group):
    t = mine(r, dtype=torch.bfloat16)
    return dist.all_reduce(t, group=group, async_op=True), [t]


def all_reduce_coalesced(r, n, group):
    ts = [mine(r, 3), mine(r, 5)]
    with dist._coalescing_manager(group, async_ops=True) as manager:
        for t in ts:
            dist.all_reduce(t, group=group)
    return manager, ts


def gather_into_tensor_coalesced(r, n, group):
    ts = [torch.zeros(3 * n), torch.zeros(2 * n)]
    with dist._coalescing_manager(group, async_ops=True) as manager:
        for t in ts:
            dist.all_gather_into_tensor(t, mine(r, t.numel() // n), group=group)
    return manager, ts


def reduce_scatter_tensor_coalesced(r, n, group):
    ts = [torch.zeros(3), torch.zeros(2)]
    with dist._coalescing_manager(group, async_ops=True) as manager:
        for t in ts:
            dist.reduce_scatter_tensor(t, mine(r, t.numel() * n), group=group)
    return manager, ts


def broadcast(r, n, group):
    t = mine(r)
    return dist.broadcast(t, group=group, group_src=1, async_op=True), [t]


def reduce(r, n, group):
    t = mine(r)
    return dist.reduce(t, group=group, group_dst=1, async_op=True), [t] if r == 1 else []


def all_gather(r, n, group):
    ts = [torch.zeros(6) for _ in range(n)]
    return dist.all_gather(ts, mine(r), group=group, async_op=True), ts


def all_gather_coalesced(r, n, group):
    rows = [[torch.zeros(2), torch.zeros(3)] for _ in range(n)]
    options = dist.distributed_c10d.AllgatherOptions()
    work = group.allgather_coalesced(rows, [mine(r, 2), mine(r, 3)], options)
    return work, [t for row in rows for t in row]


def all_gather_into_tensor(r, n, group):
    t = torch.zeros(6 * n)
    return dist.all_gather_into_tensor(t, mine(r), group=group, async_op=True), [t]


def all_gather_in_place(r, n, group):
    t = torch.zeros(6 * n)
    t[6 * r : 6 * r + 6] = mine(r)
    return dist.all_gather_into_tensor(t, t[6 * r : 6 * r + 6], group=group, async_op=True), [t]


def reduce_scatter(r, n, group):
    t = torch.zeros(4)
    return dist.reduce_scatter(t, [mine(r + k, 4) for k in range(n)], group=group, async_op=True), [t]


def reduce_scatter_tensor(r, n, group):
    t = torch.zeros(4)
    return dist.reduce_scatter_tensor(t, mine(r, 4 * n), group=group, async_op=True), [t]


def all_to_all(r, n, group):
    ts = [torch.zeros(2) for _ in range(n)]
    return dist.all_to_all(ts, [mine(r + k, 2) for k in range(n)], group=group, async_op=True), ts


def all_to_all_single(r, n, group):
    t = torch.zeros(2 * n)
    return dist.all_to_all_single(t, mine(r, 2 * n), group=group, async_op=True), [t]


def all_to_all_uneven(r, n, group):
    t = torch.zeros(n * (r + 1), 2)
    given = mine(r, n * (n + 1)).view(-1, 2)
    splits = ([r + 1] * n, list(range(1, n + 1)))
    return dist.all_to_all_single(t, given, *splits, group=group, async_op=True), [t]


def gather(r, n, group):
    ts = [torch.zeros(6) for _ in range(n)] if r == 0 else None
    return dist.gather(mine(r), ts, group=group, group_dst=0, async_op=True), ts or []


def scatter(r, n, group):
    t = torch.zeros(6)
    given = [mine(k) for k in range(n)] if r == 1 else None
    return dist.scatter(t, given, group=group, group_src=1, async_op=True), [t]


def barrier(r, n, group):
    return dist.barrier(group=group, async_op=True), []


def monitored_barrier(r, n, group):
    return dist.monitored_barrier(group=group), []


def ring(r, n, group):
    t = torch.zeros(6)
    operations = [
        dist.P2POp(dist.isend, mine(r), group=group, group_peer=(r + 1) % n, tag=3),
        dist.P2POp(dist.irecv, t, group=group, group_peer=(r - 1) % n, tag=3),
    ]
    works = dist.batch_isend_irecv(operations)
    works[0].wait()
    return works[1], [t]


def from_anyone(r, n, group):
    t = torch.zeros(6)
    if r == 1:
        return dist.isend(mine(r), group=group, group_dst=0, tag=7), []
    if r > 1:
        return None, []
    source = dist.recv(t, group=group, tag=7)
    return None, [t, torch.tensor(source)]


def sparse_all_reduce(r, n, group):
    t = torch.sparse_coo_tensor([[r, r + 1]], [1.0, 2.0], (8,))
    dist.all_reduce(t, group=group)
    return None, [t.to_dense()]


def objects(r, n, group):
    found = [None] * n
    dist.all_gather_object(found, {"rank": r, "text": "x" * (r + 1)}, group=group)
    return None, [torch.tensor([f["rank"] + len(f["text"]) for f in found])]


def functional_collectives(r, n, group):
    a = functional.all_reduce(mine(r), "sum", group)
    b = functional.all_gather_tensor(mine(r), 0, group)
    return None, [a + 0, b + 0]


def in_inference_mode(r, n, group):
    with torch.inference_mode():
        t = mine(r)
        dist.all_reduce(t, group=group)
    return None, [t.clone()]


OPERATORS = {  # the operator that each case is about, and whether its result is poisoned while in flight
    all_reduce: "allreduce_",
    all_reduce_average_of_doubles: "allreduce_",
    all_reduce_bfloat16: "allreduce_",
    all_reduce_coalesced: "allreduce_coalesced_",
    gather_into_tensor_coalesced: "allgather_into_tensor_coalesced_",
    reduce_scatter_tensor_coalesced: "reduce_scatter_tensor_coalesced_",
    broadcast: "broadcast_",
    reduce: "reduce_",
    all_gather: "allgather_",
    all_gather_coalesced: "allgather_coalesced_",
    all_gather_into_tensor: "_allgather_base_",
    all_gather_in_place: "_allgather_base_",
    reduce_scatter: "reduce_scatter_",
    reduce_scatter_tensor: "_reduce_scatter_base_",
    all_to_all: "alltoall_",
    all_to_all_single: "alltoall_base_",
    all_to_all_uneven: "alltoall_base_",
    gather: "gather_",
    scatter: "scatter_",
    barrier: "barrier",
    monitored_barrier: "monitored_barrier_",
    ring: "recv_",
    from_anyone: "recv_any_source_",
    sparse_all_reduce: "allreduce_",
    objects: "allgather_",
    functional_collectives: "allreduce_",
    in_inference_mode: "allreduce_",
}


def outcome(case, r, n, group):
    """The result of ``case``, and whether an early look found poison where there is a result to come."""
    work, tensors = case(r, n, group)
    read_only = (case is broadcast and r == 1) or not tensors
    poisoned = work is not None and not read_only and all(is_spoilt(t) for t in tensors)
    if read_only and case is broadcast:
        torch.testing.assert_close(tensors[0], mine(r), rtol=0, atol=0)  # the root may read while it sends
    if work is not None:
        work.wait()
    return [t.clone() for t in tensors], poisoned or work is None or read_only


def every_case(rank):
    """All cases, in the default group and in one of all ranks but the last, without and with the observer."""
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
            assert seen == kernels.OPERATORS.keys() - {"send"} | ({"send"} & seen)
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
    assert (anyone.peer, anyone.tag) == (1, 7)  # who it was is known when it has landed


def test_order_holds_in_groups_sub_groups_and_channels(every):
    findings = ORDER.judge(every)
    assert findings.failures == []
    assert findings.comparisons > 40


# Legal uses that must not alarm, and illegal ones that must.


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
    dist.all_reduce(used.detach())  # shares a version counter with what autograd has saved
    product.backward()  # in torch a collective does not count as a write; under the observer neither
    weight = mine(0)
    sending = dist.broadcast(weight, 0, async_op=True)
    total = float(weight.sum()) if r == 0 else 0.0  # the root reads what it sends
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
    dist.all_reduce(torch.ones(3, device="meta"))  # as a compiler asks for shapes: nothing is sent or recorded


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
    t.data[3] = 1.0  # passes by the version counter
    work.wait()
    work = dist.all_reduce(t, async_op=True)
    t.numpy()[5] = 1.0
    work.wait()
    given, gathered = torch.ones(8), torch.zeros(8 * n)
    work = dist.all_gather_into_tensor(gathered, given, async_op=True)
    given.numpy()[:] = 2.0  # out of place: the input is in flight as well
    work.wait()
    sent = torch.ones(500_000)  # sampled
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


# What the backend does not offer, and what breaks.


def refusals(rank):
    def error(call):
        try:
            call()
        except Exception as error:
            return type(error), str(error)
        return None

    calls = [
        lambda: dist.all_reduce(torch.ones(3), dist._make_nccl_premul_sum(2.0)),
        lambda: dist.all_reduce(torch.ones(4, 4).t()[:, ::2]),
        lambda: dist.all_to_all_single(torch.zeros(3), torch.zeros(3), [1], [1]),
        lambda: dist.all_gather([torch.zeros(2)] * rank.size, torch.zeros(3)),
        lambda: dist.group.WORLD._start_coalescing(torch.device("cpu")),
    ]
    plain = [error(call) for call in calls]
    rank.observe()
    observed = [error(call) for call in calls]
    assert [e and e[0] for e in observed] == [e and e[0] for e in plain]
    for with_us, without in zip(observed, plain, strict=True):
        assert with_us == without or with_us[1].splitlines()[0] == without[1].splitlines()[0], (with_us, without)
    assert "PREMUL_SUM" in plain[0][1]
    t = torch.full((3,), 2.0)
    work = dist.all_reduce(t, dist._make_nccl_premul_sum(2.0), async_op=True)
    while not work.is_completed():
        time.sleep(0.001)
    assert "PREMUL_SUM" in error(work.wait)[1], "polling does not swallow an error"
    assert t.eq(2.0).all(), "what failed is left as the transport has left it"
    t = torch.full((3,), 2.0)
    dist.all_reduce(t)
    assert t.eq(2.0 * rank.size).all()


def test_errors_are_the_backends_own(tmp_path):
    recording = run_ranks(2, tmp_path, refusals)
    refused = [c for c in recording.ranks[0].collectives if c.refused]
    assert [c.op for c in refused] == ["allgather_"]
    assert [c.op for c in recording.ranks[0].collectives if c.how == "failed"]
    assert ORDER.judge(recording).failures == []


def test_an_operator_that_torch_has_changed_is_told_by_name():
    known = kernels.OPERATORS["barrier"]
    with pytest.raises(OurFault, match=r"c10d::barrier.*Known: \(Tensor tensor.*Found: \(int x\) -> Work.*2\.13"):
        known.check("barrier", "(int x) -> Work")


def test_an_operator_that_is_not_known_is_noted_and_no_more(tmp_path):
    def body(rank):
        del kernels.OPERATORS["barrier"]
        rank.observe()
        dist.barrier()

    recording = run_ranks(2, tmp_path, body)
    assert recording.ranks[0].notes["unobserved"] == ["barrier"]
    assert recording.ranks[0].collectives == []


def batches(rank):
    """As NCCL does it: works that nobody can wait for, and one at the end that stands for all."""
    observer = rank.observe()
    tensors = [torch.ones(4), torch.ones(4)]
    observer.start_batch(dist.group.WORLD)
    works = [dist.all_reduce(t, async_op=True) for t in tensors]
    for work in works:
        work._inner.wait()
    batch = observer.end_batch(dist.group.WORLD, works[0]._inner)
    assert all(is_spoilt(t) for t in tensors)
    batch.wait()
    assert all(t.eq(rank.size).all() for t in tensors)
    work = dist.all_reduce(tensors[0], async_op=True)  # the batch is over
    assert is_spoilt(tensors[0])
    work.wait()


def test_the_end_of_a_batch_lands_all_of_it(tmp_path):
    recording = run_ranks(2, tmp_path, batches)
    assert [c.how for c in recording.ranks[0].collectives] == ["waited"] * 3


def test_recordings_from_before_are_read(tmp_path):
    Scenario(name="t", situation="t", workload="exact", strategy=Builtin(name="x"), world_size=1).save(tmp_path)
    journal = Journal(tmp_path / "subject" / "rank0")
    old = {"seq": 0, "op": "allreduce_", "group": "0", "phase": "backward", "step": 0, "dtype": "float32", "numel": 2}
    journal.write("collective", **old, num_bytes=8, reduce_op="SUM", root=None, issued=1.0, blob=None)
    journal.write("landed", seq=0, at=2.0, written=True)
    (found,) = Recording.load(tmp_path).ranks[0].collectives
    assert (found.landed, found.written_in_flight, found.written, found.ranks) == (2.0, True, None, None)
    assert found.describe() == "allreduce SUM of 2 float32"


# Delays.


class Held(Delay):
    """Lands late and starts in time, so that what is seen does not depend on how busy the machine is."""

    def before_issue(self, seq: int) -> float:
        return 0.0


def delayed(rank):
    observer = rank.observe(Held(seed=3, rank=rank.rank, world_size=rank.size, max_ms=1000.0))
    tensors = [mine(rank.rank) for _ in range(8)]
    works = [dist.all_reduce(t, async_op=True) for t in tensors]
    for work in works:
        work._inner.wait()  # the transport has done its part
    seen = [work.is_completed() for work in works]
    assert sorted(seen) != seen[::-1], f"nothing was overtaken: {seen}"
    assert [is_spoilt(t) for t in tensors] == [not done for done in seen]
    for work in works:
        work.wait()
    assert all(torch.equal(t, tensors[0]) for t in tensors)
    observer.delay = Delay(seed=3, rank=rank.rank, world_size=rank.size, max_ms=20.0)
    futures = [dist.all_reduce(t, async_op=True).get_future() for t in tensors]
    for future in futures:
        future.wait()
    model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(4, 4), bucket_cap_mb=0.00001)
    for _ in range(3):
        model(torch.ones(2, 4)).sum().backward()
    gradients = torch.cat([p.grad.flatten() for p in model.parameters()])
    assert torch.isfinite(gradients).all()


def test_delays_are_legal(tmp_path):
    recording = run_ranks(2, tmp_path, delayed)
    assert ORDER.judge(recording).failures == []


def test_delays_are_seeded_and_agree_on_who_is_slow():
    slow = [[r for r in range(3) if Delay(1, r, 3, 10.0).before_issue(seq) > 0] for seq in range(40)]
    assert all(len(ranks) == 1 for ranks in slow)
    assert len({ranks[0] for ranks in slow}) == 3
    one = Delay(1, 0, 3, 10.0)
    late = [one.before_landing(seq) for seq in range(40)]
    assert late == [Delay(1, 0, 3, 10.0).before_landing(seq) for seq in range(40)]
    assert 0 < sum(s > 0 for s in late) < 40
    assert max(late) <= 0.01


def hammer(rank):
    """Futures, a C++ reducer and waits from several threads at once: what a held GIL would turn into a deadlock."""
    rank.observe()
    model = torch.nn.parallel.DistributedDataParallel(
        torch.nn.Sequential(*[torch.nn.Linear(16, 16) for _ in range(6)]), bucket_cap_mb=0.001
    )
    for _ in range(ROUNDS):
        model(torch.ones(2, 16)).sum().backward()
        works = [dist.all_reduce(torch.ones(100), async_op=True) for _ in range(10)]
        futures = [work.get_future().then(lambda f: f.wait()[0].sum()) for work in works]
        assert {float(f.wait()) for f in futures} == {100.0 * rank.size}


def test_no_deadlock(tmp_path):
    run_ranks(2, tmp_path, hammer)


# The judge of order, on recordings made by hand.


def call(seq, op="allreduce_", *, ranks=(0, 1), numel=4, landed=True, group="0", **fields):
    return Collective(
        seq=seq, op=op, group=group, phase="backward", step=0, dtype="float32", numel=numel, num_bytes=4 * numel,
        reduce_op=None, root=None, issued=0.0, landed=1.0 if landed else None, written_in_flight=False, contents=None,
        ranks=ranks, **fields,
    )  # fmt: skip


def judged(tmp_path, *ranks, outcomes=None) -> Findings:
    Scenario(name="t", situation="t", workload="exact", strategy=Builtin(name="x"), world_size=len(ranks)).save(
        tmp_path
    )
    recording = Recording.load(tmp_path)
    for rank, calls in zip(recording.ranks, ranks, strict=True):
        rank.collectives = list(calls)
        status = (outcomes or ["completed"] * len(ranks))[rank.rank]
        rank.outcome = None if status == "hung" else {"status": status, "detail": "x"}
    return ORDER.judge(recording)


def test_groups_of_one_name_and_other_members_are_not_compared(tmp_path):
    here = [call(0, ranks=(0, 1), group="mesh")]
    there = [call(0, "broadcast_", ranks=(2, 3), group="mesh"), call(1, ranks=(2, 3), group="mesh")]
    assert judged(tmp_path, here, here, there, there).failures == []
    assert len(judged(tmp_path, here, [], there, there).failures) == 1  # rank 1 is a member, and issued nothing


def test_a_rank_that_finished_while_another_waits_is_a_failure(tmp_path):
    stuck = [call(0), call(1, landed=False)]
    (failure,) = judged(tmp_path, stuck, [call(0)], outcomes=["hung", "completed"]).failures
    assert failure.explanation == (
        "rank 1 finished, and rank 0 waits in allreduce of 4 float32, number 1, which rank 1 never issued"
    )
    for ended in ("raised", "hung"):  # it may have been about to issue it
        assert judged(tmp_path, stuck, [call(0)], outcomes=["hung", ended]).failures == []


def test_a_mismatch_is_one_also_where_ranks_did_not_end(tmp_path):
    findings = judged(tmp_path, [call(0), call(1)], [call(0), call(1, "broadcast_")], outcomes=["hung", "hung"])
    assert [f.cause for f in findings.failures] == ["collectives_differ"]


def test_messages_are_matched_by_channel(tmp_path):
    def send(seq, to, tag=0, numel=4):
        return call(seq, "send", peer=to, tag=tag, numel=numel)

    def receive(seq, source, tag=0, numel=4):
        return call(seq, "recv_", peer=source, tag=tag, numel=numel)

    there = [send(0, 1), send(1, 1, tag=5, numel=8), receive(2, 1)]
    assert judged(tmp_path, there, [send(0, 0), receive(1, 0, tag=5, numel=8), receive(2, 0)]).failures == []
    (failure,) = judged(tmp_path, there, [send(0, 0), receive(1, 0, tag=5, numel=9), receive(2, 0)]).failures
    assert "8 float32, and is received as 9" in failure.explanation
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


# What is poison, and what is the same.


@pytest.mark.parametrize(
    "dtype",
    [torch.float32, torch.float64, torch.float16, torch.bfloat16, torch.complex64, torch.int64, torch.uint8,
     torch.int8, torch.int16, torch.int32, torch.float8_e4m3fn],
)  # fmt: skip
def test_poison_is_found_again_and_a_write_to_one_element_too(dtype):
    for tensor in (torch.ones(7).to(dtype), torch.ones(3, 4).to(dtype).t(), torch.ones(()).to(dtype)):
        version = tensor._version
        assert spoil(tensor)
        assert is_spoilt(tensor)
        assert tensor._version == version
        if dtype.is_floating_point or dtype.is_complex:
            assert torch.isnan(tensor.to(torch.complex64 if dtype.is_complex else torch.float32)).all()
        tensor.reshape(-1)[-1:].data.zero_() if tensor.is_contiguous() else tensor.data[-1].zero_()
        assert not is_spoilt(tensor)


def test_booleans_have_no_poison():
    assert not spoil(torch.ones(3, dtype=torch.bool))


def test_the_payload_is_a_nan_of_our_own():
    tensor = torch.zeros(2)
    spoil(tensor)
    copied, calculated = tensor.clone(), tensor * 0.5
    assert (calculated.numpy().view(np.uint32) == POISON_FLOAT32).all()
    assert holds_poison(copied.numpy())
    assert holds_poison(calculated.numpy())
    assert not holds_poison(np.array([np.nan, 1.0]))


def test_digests_and_overlaps():
    large = torch.zeros(1_000_000)
    before = digest(large)
    large[-1] = 1
    assert digest(large) != before
    assert digest(large[::2]) is None
    one = torch.zeros(1, 4)[:, 1]  # contiguous, with a stride of 4
    assert digest(one) == digest(torch.zeros(1))
    assert digest(torch._neg_view(large)) is None
    buffer = torch.zeros(8)
    assert overlaps(buffer[2:4], [buffer])
    assert not overlaps(buffer[:4], [buffer[4:]])
