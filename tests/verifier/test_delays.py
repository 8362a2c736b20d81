"""The observer's delays: legal, seeded, equal on all ranks, and never a deadlock."""

from __future__ import annotations

import torch
import torch.distributed as dist

from tests.verifier.forked import mine, run_ranks
from verifier.checks.ls301_collective_order import CHECK as ORDER
from verifier.observe.delay import Delay
from verifier.observe.poison import is_spoilt

ROUNDS = 12


class Held(Delay):
    """A delay that starts collectives in time and lands them late, so that the result does not depend on the load."""

    def before_issue(self, seq: int) -> float:
        return 0.0


def delayed(rank):
    observer = rank.observe(Held(seed=3, rank=rank.rank, world_size=rank.size, max_ms=1000.0))
    tensors = [mine(rank.rank) for _ in range(8)]
    works = [dist.all_reduce(t, async_op=True) for t in tensors]
    for work in works:
        work._inner.wait()  # the transport has finished
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
    """Use futures, a C++ reducer and waits from several threads at once: holding the GIL would deadlock here."""
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
