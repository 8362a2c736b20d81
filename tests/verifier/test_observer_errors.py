"""The observer where something is refused, fails, or is not known.

Operators that the backend lacks or torch has changed, works that come in a batch, recordings of earlier versions.
"""

from __future__ import annotations

import time

import pytest
import torch
import torch.distributed as dist

from tests.verifier.forked import run_ranks
from verifier import reading
from verifier.checks.ls301_collective_order import CHECK as ORDER
from verifier.checks.ls601_liveness import CHECK as LIVENESS
from verifier.errors import OurFault
from verifier.journal import Journal
from verifier.observe import kernels
from verifier.observe.poison import is_spoilt
from verifier.refusal import refusal
from verifier.request import Builtin
from verifier.scenario import Scenario


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
    before = ["alltoall_base_"] if refused[0].op == "alltoall_base_" else []  # torch 2.13 refuses it itself
    assert [c.op for c in refused] == [*before, "allgather_"]
    assert [c.op for c in recording.ranks[0].collectives if c.how == "failed"]
    assert ORDER.judge(recording).failures == []


def expanded(rank):
    rank.observe()
    gathered = [torch.zeros(4) for _ in range(rank.size)]
    dist.all_gather(gathered, torch.full((1,), float(rank.rank)).expand(4))  # gloo copies this tensor
    assert [t.tolist() for t in gathered] == [[float(r)] * 4 for r in range(rank.size)]
    with pytest.raises(RuntimeError, match=r"allreduce was given a tensor of shape \[4\] and strides \[0\], whose"):
        dist.all_reduce(torch.ones(1).expand(4))
    work = dist.group.WORLD.allreduce_coalesced([torch.ones(1).expand(4)], dist.AllreduceCoalescedOptions())
    with pytest.raises(RuntimeError, match="more than one element of the written-to tensor"):
        work.wait()  # torch's own error, as without the observer
    dist.all_reduce(torch.ones(1).expand(1, 1))  # a single element shares its memory with no other


def test_elements_that_share_memory_are_not_given_to_gloo(tmp_path):
    recording = run_ranks(2, tmp_path, expanded)
    (first, second) = LIVENESS.judge(recording).failures
    assert (first.cause, first.rank, second.rank) == ("elements_share_memory", 0, 1)
    assert refusal(recording) is None


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
    """A batch as in NCCL: works that cannot be waited for, and one at the end that stands for all."""
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
    (found,) = reading.read(tmp_path).ranks[0].collectives
    assert (found.landed, found.written_in_flight, found.written, found.ranks) == (2.0, True, None, None)
    assert found.describe() == "allreduce SUM of 2 float32"
