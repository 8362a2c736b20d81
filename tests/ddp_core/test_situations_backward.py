"""Situations of backward, on every strategy: several, none, one that raises, and gradients changed in between."""

from __future__ import annotations

import pytest


@pytest.mark.parametrize("set_to_none", [True, False])
def test_views_survive_zero_grad_either_way(on_ranks, set_to_none):
    on_ranks(f"""
        build = lambda: nn.Sequential(nn.Linear(4, 5), nn.ReLU(), nn.Linear(5, 3))
        loss = lambda m, r, s: m(data(r, s)).square().mean()
        same_as_one_process(build, loss, set_to_none={set_to_none})
        wrapped = bucketed.wrap(build(), rebuild=False)
        wrapped(torch.ones(1, 4)).sum().backward()
        buffer = wrapped.strategy.buckets[0].buffer
        start, end = buffer.data_ptr(), buffer.data_ptr() + buffer.numel() * 4
        for step in range(2):
            wrapped.zero_grad(set_to_none={set_to_none})
            wrapped(torch.ones(1, 4)).sum().backward()
            assert all(start <= p.grad.data_ptr() < end for p in wrapped.parameters())
    """)


def test_gradients_stay_where_they_are_without_views(on_ranks):
    on_ranks("""
        STRATEGIES[:] = [bucketed]
        build = lambda: nn.Sequential(nn.Linear(4, 5), nn.ReLU(), nn.Linear(5, 3))
        loss = lambda m, r, s: m(data(r, s)).square().mean()
        same_as_one_process(build, loss, wrap_options=dict(gradient_as_bucket_view=False))
        linear = nn.Linear(4, 2)
        wrapped = bucketed.wrap(linear, gradient_as_bucket_view=False)
        mine = linear.weight.grad = torch.zeros(2, 4)
        wrapped(torch.ones(1, 4) * rank).sum().backward()
        assert linear.weight.grad is mine and mine.eq(0.5).all()
    """)


def test_two_forwards_then_two_backwards(on_ranks):
    """torch's DDP diverges silently here (pytorch.org forums, accelerate#1726)."""
    on_ranks("""
        for strategy in STRATEGIES:
            torch.manual_seed(1)
            single = nn.Sequential(nn.Linear(4, 3), nn.BatchNorm1d(3, momentum=None, affine=False)).double()
            wrapped = strategy.wrap(copy.deepcopy(single), broadcast_buffers=False, **options(strategy))
            for step in range(2):
                wrapped.zero_grad(), single.zero_grad()
                losses = [wrapped(data(rank, 2 * step + i)).pow(3).mean() for i in range(2)]
                for loss in losses:
                    loss.backward()
                for r in range(world):
                    for i in range(2):
                        (single(data(r, 2 * step + i)).pow(3).mean() / world).backward()
                same(wrapped.module, single, (strategy.__name__, step))
        # and with buffers that are broadcast between the two forwards
        for strategy in STRATEGIES:
            wrapped = strategy.wrap(nn.Sequential(nn.Linear(4, 3), nn.BatchNorm1d(3)).double(), **options(strategy))
            losses = [wrapped(data(rank, i)).pow(3).mean() for i in range(2)]
            for loss in losses:
                loss.backward()
    """)


def test_several_forwards_before_one_backward(on_ranks):
    on_ranks("""
        build = lambda: nn.Sequential(nn.Linear(4, 5), nn.ReLU(), nn.Linear(5, 3))
        loss = lambda m, r, s: (m(data(r, s)) - m(data(r, s + 50))).square().mean() + m(data(r, s + 60)).mean()
        same_as_one_process(build, loss)
    """)


def test_accumulation_nested_and_with_an_exception_inside(on_ranks):
    on_ranks("""
        for strategy in STRATEGIES:
            torch.manual_seed(1)
            single = nn.Sequential(nn.Linear(4, 5), nn.ReLU(), nn.Linear(5, 3)).double()
            wrapped = strategy.wrap(copy.deepcopy(single), **options(strategy))
            for step, set_to_none in enumerate((True, False, True)):
                wrapped.zero_grad(set_to_none=set_to_none), single.zero_grad(set_to_none=set_to_none)
                calls = wrapped.comm.num_calls
                with wrapped.no_sync():
                    wrapped(data(rank, step)).square().mean().backward()
                    try:
                        with wrapped.no_sync():
                            raise KeyError
                    except KeyError:
                        pass
                    assert not wrapped.synchronises
                    wrapped(data(rank, step + 10)).square().mean().backward()
                assert wrapped.comm.num_calls == calls
                wrapped(data(rank, step + 20)).square().mean().backward()
                for r in range(world):
                    for s in (step, step + 10, step + 20):
                        (single(data(r, s)).square().mean() / world).backward()
                same(wrapped.module, single, (strategy.__name__, step))
    """)


def test_synchronising_after_each_of_two_backwards(on_ranks):
    on_ranks("""
        for strategy in STRATEGIES:
            torch.manual_seed(1)
            single = nn.Sequential(nn.Linear(4, 5), nn.ReLU(), nn.Linear(5, 3)).double()
            wrapped = strategy.wrap(copy.deepcopy(single), **options(strategy))
            for step in range(2):
                for r in range(world):
                    (single(data(r, step)).square().mean() / world).backward()
                wrapped(data(rank, step)).square().mean().backward()
                same(wrapped.module, single, (strategy.__name__, step))
    """)


def test_zero_grad_between_forward_and_backward(on_ranks):
    on_ranks("""
        for set_to_none in (True, False):
            for strategy in STRATEGIES:
                torch.manual_seed(1)
                single = nn.Linear(4, 3).double()
                wrapped = strategy.wrap(copy.deepcopy(single), **options(strategy))
                for step in range(3):
                    loss = wrapped(data(rank, step)).square().mean()
                    wrapped.zero_grad(set_to_none=set_to_none)
                    loss.backward()
                    single.zero_grad(set_to_none=set_to_none)
                    (sum(single(data(r, step)).square().mean() for r in range(world)) / world).backward()
                    same(wrapped.module, single, (strategy.__name__, step))
    """)


def test_two_parameters_that_share_one_gradient_tensor(on_ranks):
    on_ranks("""
        class Pair(nn.Module):
            def __init__(self):
                super().__init__()
                self.a, self.b = (nn.Parameter(torch.ones(3, dtype=torch.float64)) for _ in range(2))
            def forward(self, x): return (x * self.a).sum() + (x * self.b).pow(2).sum()
        for strategy in STRATEGIES:
            wrapped, single = strategy.wrap(Pair(), **options(strategy)), Pair()
            for pair in (wrapped.module, single):
                pair.a.grad = pair.b.grad = torch.zeros(3, dtype=torch.float64)
            wrapped(data(rank, 0, 1, 3)[0]).backward()
            for r in range(world):
                (single(data(r, 0, 1, 3)[0]) / world).backward()
            same(wrapped.module, single, strategy.__name__)
    """)


def test_gradients_that_share_memory(on_ranks):
    on_ranks("""
        class Net(nn.Module):
            def __init__(self):
                super().__init__(); self.a, self.b = nn.Parameter(torch.ones(2, 2)), nn.Parameter(torch.ones(4))
            def forward(self, x): return (self.a.view(-1) + self.b) * x
        same_as_one_process(Net, lambda m, r, s: m(data(r, s, 1)[0]).sum())
        for strategy in STRATEGIES:
            torch.manual_seed(1)
            single = nn.Sequential(nn.Linear(4, 4, bias=False), nn.Linear(4, 4, bias=False)).double()
            wrapped = strategy.wrap(copy.deepcopy(single), **options(strategy))
            loss, losses = wrapped(data(rank)).square().mean(), [single(data(r)).square().mean() for r in range(world)]
            for m in (wrapped.module, single):
                m[0].weight.grad = m[1].weight.grad = torch.zeros(4, 4, dtype=torch.float64)  # after the forward
            loss.backward(); (sum(losses) / world).backward()
            same(wrapped.module, single, strategy.__name__)
    """)


def test_an_exception_in_the_middle_of_backward(on_ranks):
    """On every rank, or on one whose peers wait for it: the next step is correct, and no rank hangs."""
    on_ranks("""
        class Bad(torch.autograd.Function):
            @staticmethod
            def forward(ctx, x, bad): ctx.bad = bad; return x.clone()
            @staticmethod
            def backward(ctx, g):
                if ctx.bad: raise ArithmeticError("in backward")
                return g, None
        class Net(nn.Module):
            def __init__(self): super().__init__(); self.first, self.last = nn.Linear(4, 4), nn.Linear(4, 2)
            def forward(self, x, bad=False): return self.last(Bad.apply(self.first(x), bad))
        for guilty in ([0, 1], [1]):
            for strategy in STRATEGIES:
                torch.manual_seed(1)
                single = Net().double()
                wrapped = strategy.wrap(copy.deepcopy(single), **options(strategy))
                for step, bad in enumerate((False, True, False, True, True, False)):
                    wrapped.zero_grad()
                    with warnings.catch_warnings(record=True) as said:
                        warnings.simplefilter("always")
                        output = wrapped(data(rank, step), bad and rank in guilty)
                    try:
                        output.square().mean().backward()
                    except ArithmeticError:
                        assert bad and rank in guilty
                    if not bad:
                        single.zero_grad()
                        (sum(single(data(r, step)).square().mean() for r in range(world)) / world).backward()
                        same(wrapped.module, single, (strategy.__name__, step, guilty))
                    if step in (2, 4) and rank in guilty:
                        assert "did not come to its end" in str(said[0].message)
    """)


def test_a_failed_backward_and_then_a_backward_without_a_forward_between(on_ranks):
    on_ranks(
        """
        class Bad(torch.autograd.Function):
            @staticmethod
            def forward(ctx, x): return x.clone()
            @staticmethod
            def backward(ctx, g): raise ArithmeticError("in backward")
        for strategy in STRATEGIES:
            for silent in (True, False):
                torch.manual_seed(1)
                single = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 2)).double()
                wrapped = strategy.wrap(copy.deepcopy(single), **options(strategy))
                fine, bad = wrapped(data(rank)), wrapped(data(rank, 1))
                def failing():
                    x = wrapped.module[0](data(rank, 1))
                    (bad.sum() * 0 + wrapped.module[1](Bad.apply(x)).sum()).backward()
                with warnings.catch_warnings():
                    warnings.simplefilter("ignore")
                    with wrapped.no_sync() if silent else contextlib.nullcontext():
                        raises(ArithmeticError, "in backward", failing)
                    wrapped.zero_grad()
                    fine.square().mean().backward()
                (sum(single(data(r)).square().mean() for r in range(world)) / world).backward()
                same(wrapped.module, single, (strategy.__name__, silent))
    """.replace("for strategy in", "import contextlib\n        for strategy in", 1)
    )


def test_inside_and_outside_a_reentrant_checkpoint(on_ranks):
    """Correct where a strategy waits for the end of backward; refused where a part had already been sent."""
    on_ranks("""
        class Net(nn.Module):
            def __init__(self): super().__init__(); self.b, self.a = nn.Linear(4, 4), nn.Linear(4, 4)
            def forward(self, x):
                return self.a(checkpoint(lambda t: self.a(t).tanh(), self.b(x), use_reentrant=True))
        loss = lambda m, r, s: m(data(r, s)).square().mean()
        STRATEGIES[:] = [flat, naive]
        same_as_one_process(Net, loss)
        for strategy in (hook, async_hook):
            wrapped = strategy.wrap(Net().double())
            raises(RuntimeError, "use_reentrant=False", lambda: [loss(wrapped, rank, s).backward() for s in range(2)])
    """)


def test_a_custom_output_object_around_reentrant_checkpoints(on_ranks):
    on_ranks("""
        class Output:
            def __init__(self, logits): self.logits, self.me = logits, self
        class Net(nn.Module):
            def __init__(self): super().__init__(); self.parts = nn.ModuleList(nn.Linear(4, 4) for _ in range(3))
            def forward(self, x, depth):
                for part in self.parts[:depth]: x = checkpoint(part, x, use_reentrant=True)
                return Output(x)
        same_as_one_process(Net, lambda m, r, s: m(data(r, s).requires_grad_(), 2 + r % 2).logits.square().mean())
    """)


def test_clipping_after_synchronisation(on_ranks):
    on_ranks("""
        for strategy in STRATEGIES:
            torch.manual_seed(1)
            single = nn.Sequential(nn.Linear(4, 5), nn.ReLU(), nn.Linear(5, 3)).double()
            wrapped = strategy.wrap(copy.deepcopy(single), **options(strategy))
            for max_norm in (0.01, 100.0):
                wrapped.zero_grad(), single.zero_grad()
                wrapped(data(rank)).square().mean().backward()
                (sum(single(data(r)).square().mean() for r in range(world)) / world).backward()
                norms = [nn.utils.clip_grad_norm_(m.parameters(), max_norm) for m in (wrapped, single)]
                assert abs(norms[0] - norms[1]) < 1e-12
                same(wrapped.module, single, strategy.__name__)
    """)
