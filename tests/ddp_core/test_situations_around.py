"""Situations around a wrapper: its state dict, a compiler, evaluation, the order of parameters, unwrapping."""

from __future__ import annotations


def test_state_dict_is_that_of_the_bare_model(on_ranks):
    on_ranks("""
        for strategy in STRATEGIES:
            bare = nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4))
            wrapped = strategy.wrap(nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4)))
            assert list(wrapped.state_dict()) == list(bare.state_dict())
            bare.load_state_dict(wrapped.state_dict())
            assert wrapped.load_state_dict(bare.state_dict()).missing_keys == []
            larger = nn.ModuleDict({"net": wrapped, "head": nn.Linear(4, 2)})
            plain = nn.ModuleDict({"net": bare, "head": nn.Linear(4, 2)})
            assert list(larger.state_dict()) == list(plain.state_dict())
            with torch.no_grad():
                bare[0].weight.fill_(7.0)
            saved = io.BytesIO()
            torch.save(plain.state_dict(), saved); saved.seek(0)
            larger.load_state_dict(torch.load(saved, weights_only=True))
            assert wrapped.module[0].weight.eq(7).all()
            plain.load_state_dict(larger.state_dict())
            raises(RuntimeError, 'Missing key(s) in state_dict: "net', lambda: larger.load_state_dict({}))
            raises(RuntimeError, "Unexpected key(s)", lambda: wrapped.load_state_dict({**bare.state_dict(), "x": 1}))
    """)


def test_compiled_inner_module(on_ranks):
    on_ranks("""
        STRATEGIES[:] = [bucketed]
        inner = lambda: nn.Sequential(nn.Linear(4, 5), nn.ReLU(), nn.Linear(5, 3)).double()
        torch.manual_seed(1)
        single = inner()
        wrapped = bucketed.wrap(torch.compile(copy.deepcopy(single), backend="aot_eager"), **TINY)
        for step in range(2):
            wrapped.zero_grad(), single.zero_grad()
            wrapped(data(rank, step)).square().mean().backward()
            (sum(single(data(r, step)).square().mean() for r in range(world)) / world).backward()
            same(wrapped.module, single, step)
        wrapped = bucketed.wrap(copy.deepcopy(single), **TINY)
        outer = torch.compile(wrapped, backend="aot_eager")  # and of the wrapper
        for step in range(2):
            wrapped.zero_grad(), single.zero_grad()
            outer(data(rank, step)).square().mean().backward()
            (sum(single(data(r, step)).square().mean() for r in range(world)) / world).backward()
            same(wrapped.module, single, step)
    """)


def test_evaluation_mode_synchronises_gradients_and_leaves_buffers(on_ranks):
    """Fine-tuning with a frozen BatchNorm: the layers are in eval() mode, and backward() still synchronises."""
    on_ranks("""
        for strategy in STRATEGIES:
            torch.manual_seed(1)
            single = nn.Sequential(nn.Linear(4, 3), nn.BatchNorm1d(3)).double().eval()
            wrapped = strategy.wrap(copy.deepcopy(single), **options(strategy)).eval()
            wrapped(data(rank)).square().mean().backward()
            (sum(single(data(r)).square().mean() for r in range(world)) / world).backward()
            same(wrapped.module, single, strategy.__name__)
            with wrapped.join():
                for step in range(1 + rank):
                    wrapped(data(rank, step)).square().mean().backward()
    """)


def test_rank_0s_order_is_taken_over_by_all(on_ranks):
    """Parameters registered in one order, used in another, and in a third on rank 1: all ranks adopt rank 0's order."""
    on_ranks("""
        class Net(nn.Module):
            def __init__(self):
                super().__init__(); self.parts = nn.ModuleList(nn.Linear(4, 4, bias=False) for _ in range(4))
            def forward(self, x, order):
                for i in order: x = self.parts[i](x)
                return x
        wrapped = bucketed.wrap(Net(), bucket_cap_mb=130 / 2**20)
        assert wrapped.strategy.plan() == [["parts.3.weight", "parts.2.weight"], ["parts.1.weight", "parts.0.weight"]]
        wrapped(torch.ones(1, 4), [2, 0, 3, 1] if rank == 0 else [0, 1, 2, 3]).sum().backward()
        after = [["parts.1.weight", "parts.3.weight"], ["parts.0.weight", "parts.2.weight"]]
        assert wrapped.strategy.plan() == after, wrapped.strategy.plan()
        buckets = wrapped.strategy.buckets
        wrapped(torch.ones(1, 4), [3, 2, 1, 0]).sum().backward()
        assert wrapped.strategy.plan() == after and wrapped.strategy.buckets is not buckets
        said = "Bucketed(bucket_cap_mb=0.000123978; 2 buckets: 0.000122 + 0.000122 MB)"
        assert repr(wrapped.strategy) == said, wrapped.strategy
        kept = wrapped.strategy.buckets
        wrapped(torch.ones(1, 4), [0, 1, 2, 3]).sum().backward()
        assert wrapped.strategy.buckets is kept  # once, not at every step
        fixed = bucketed.wrap(Net(), bucket_cap_mb=130 / 2**20, rebuild=False)
        before = fixed.strategy.plan()
        fixed(torch.ones(1, 4), [2, 0, 3, 1]).sum().backward()
        assert fixed.strategy.plan() == before
    """)


def test_the_wrapper_after_unwrap_strategies_used_twice_and_odd_models(on_ranks):
    on_ranks("""
        from ddp_core.strategies.bucketed import Bucketed
        wrapped = bucketed.wrap(nn.Linear(4, 2))
        wrapped.unwrap()
        raises(RuntimeError, "was unwrapped", lambda: wrapped(torch.ones(1, 4)))
        strategy = Bucketed()
        DataParallel(nn.Linear(4, 2), strategy)
        raises(ValueError, "make a new Bucketed for each model", lambda: DataParallel(nn.Linear(4, 2), strategy))
        empty = nn.ParameterList([nn.Parameter(torch.ones(2)), nn.Parameter(torch.ones(0, dtype=torch.float64))])
        wrapped = bucketed.wrap(empty)
        (empty[0].sum() + empty[1].sum()).backward()
        scripted = bucketed.wrap(torch.jit.script(nn.Linear(4, 2)))
        scripted(torch.full((1, 4), rank + 1.0)).sum().backward()
        assert scripted.module.weight.grad.eq(1.5).all()
        class Long(nn.Module):
            def __init__(self): super().__init__(); self.w = nn.Parameter(torch.ones(4))
            def forward(self, x): return self.w, x * self.w
        wrapped = naive.wrap(Long())
        for step in range(5):
            wrapped(torch.ones(4))[1].sum().backward()
        assert not wrapped.module.w._backward_hooks  # an output that is a leaf gathers no hooks
        norm = bucketed.wrap(nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4)))
        for step in range(2):  # a checkpoint around the wrapper: its buffers follow rank 0 all the same
            checkpoint(norm, torch.randn(3, 4).requires_grad_() + rank, use_reentrant=True).sum().backward()
        norm(torch.randn(3, 4)); every = norm.comm.gather_objects(norm.module[1].num_batches_tracked.item())
        assert every[0] == every[1]
    """)
