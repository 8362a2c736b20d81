"""Ranks whose data ends early: ``join``, alone and with batch norm and a sharded optimizer."""

from __future__ import annotations

import pytest


@pytest.mark.parametrize("by_initial", [True, False])
def test_uneven_inputs(on_ranks, by_initial):
    on_ranks(
        f"""
        for strategy in STRATEGIES:
            torch.manual_seed(1 + rank)
            net = nn.Sequential(nn.Linear(4, 3), nn.BatchNorm1d(3, affine=False)).double()
            wrapped = strategy.wrap(net.eval().train(), **options(strategy))
            wrapped.module[1].eval()
            single = copy.deepcopy(wrapped.module)
            optimizers = [torch.optim.SGD(m.parameters(), lr=0.1, momentum=0.5) for m in (wrapped, single)]
            num_batches = [2 + 2 * r for r in range(world)]
            with wrapped.join(divide_by_initial_world_size={by_initial}):
                for step in range(num_batches[rank]):
                    wrapped.zero_grad()
                    with wrapped.no_sync():
                        wrapped(data(rank, step)).square().mean().backward()
                    wrapped(data(rank, step + 30)).square().mean().backward()
                    optimizers[0].step()
            for step in range(max(num_batches)):
                single.zero_grad()
                active = [r for r in range(world) if step < num_batches[r]]
                by = world if {by_initial} else len(active)
                for r in active:
                    for s in (step, step + 30):
                        (single(data(r, s)).square().mean() / by).backward()
                optimizers[1].step()
            for a, b in zip(wrapped.module.state_dict().values(), single.state_dict().values()):
                assert (a - b).abs().max() < 1e-12, (strategy.__name__, a, b)
            assert wrapped.strategy.divisor == world
            wrapped.zero_grad(), single.zero_grad()
            wrapped(data(rank)).square().mean().backward()  # and on after it
            (sum(single(data(r)).square().mean() for r in range(world)) / world).backward()
            assert (wrapped.module[0].weight.grad - single[0].weight.grad).abs().max() < 1e-12
    """,
        world_size=3,
    )


def test_join_can_stop_everyone_and_refuses_a_mixture(on_ranks):
    on_ranks("""
        for strategy in STRATEGIES:
            wrapped = strategy.wrap(nn.Linear(4, 2))
            def early():
                with wrapped.join(throw_on_early_termination=True):
                    for step in range(2 + rank):
                        wrapped(torch.ones(1, 4)).sum().backward()
            raises(RuntimeError, "exhausted", early)
            wrapped.left_join()
            def mixed():
                with wrapped.join():
                    with wrapped.no_sync():
                        loss = wrapped(torch.ones(1, 4)).sum()
                    loss.backward()
            raises(RuntimeError, "both be inside or both outside of no_sync()", mixed)
    """)


def test_batch_norm_under_join_with_rank_0_leaving_first(on_ranks):
    on_ranks("""
        for strategy in STRATEGIES:
            wrapped = strategy.wrap(nn.Sequential(nn.Linear(4, 3), nn.BatchNorm1d(3)).double(), **options(strategy))
            with wrapped.join():
                for step in range(1 + 2 * rank):
                    wrapped(data(rank, step)).square().mean().backward()
            every = wrapped.comm.gather_objects([t.tolist() for t in wrapped.state_dict().values()])
            assert every[0] == every[1]
            assert wrapped.module[1].num_batches_tracked == 3
    """)


def test_join_serves_a_sharded_optimizer_and_refuses_unpaired_forwards(on_ranks):
    on_ranks("""
        from torch.distributed.algorithms.join import Join
        from torch.distributed.optim import ZeroRedundancyOptimizer
        for strategy in STRATEGIES:
            torch.manual_seed(1)
            single = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 2)).double()
            wrapped = strategy.wrap(copy.deepcopy(single), **options(strategy))
            sharded = ZeroRedundancyOptimizer(wrapped.parameters(), optimizer_class=torch.optim.SGD, lr=0.1)
            plain = torch.optim.SGD(single.parameters(), lr=0.1)
            with Join([wrapped, sharded]):
                for step in range(1 + 2 * rank):
                    wrapped.zero_grad()
                    wrapped(data(rank, step)).square().mean().backward()
                    sharded.step()
            wrapped.left_join()
            for step in range(3):
                single.zero_grad()
                for r in range(world):
                    if step < 1 + 2 * r: (single(data(r, step)).square().mean() / world).backward()
                plain.step()
            for a, b in zip(wrapped.module.parameters(), single.parameters()):
                assert (a - b).abs().max() < 1e-12, strategy.__name__
            def twice():
                with wrapped.join():
                    first, second = wrapped(data(rank)), wrapped(data(rank, 1))
            raises(RuntimeError, "each synchronised forward is followed by one backward", twice)
            wrapped(data(rank)).sum().backward()  # and out of the context all is as before
    """)
