"""The catalogue of situations that wrappers get wrong, on every strategy of ours, against one process.

Every body below runs on real ranks, inside ``wrap`` of a strategy file. ``same_as_one_process`` trains a wrapped replica
and, beside it on the same rank, a bare model on what all ranks see, in float64 and with SGD with momentum.
"""

from __future__ import annotations

import textwrap

import pytest

HEAD = """
import copy, io, pickle, warnings
import torch, torch.distributed as dist
from torch import nn
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint
from ddp_core import Comm, DataParallel
from ddp_core.strategies import async_hook, bucketed, flat, hook, naive, strict
STRATEGIES = {strategies}
TINY = dict(bucket_cap_mb=0.0002, first_bucket_cap_mb=0.0001)

def options(strategy):
    return TINY if strategy is bucketed else {{}}

def data(rank, step=0, rows=3, width=4):
    return torch.randn(rows, width, generator=torch.Generator().manual_seed(100 * step + rank), dtype=torch.float64)

def same(mine, theirs, what):
    for (name, a), (_, b) in zip(mine.named_parameters(), theirs.named_parameters(), strict=True):
        assert (a.grad is None) == (b.grad is None), (what, name, a.grad, b.grad)
        for x, y in ((a, b), (a.grad, b.grad)):
            if x is not None and x.numel():
                x, y = (t.to_dense() if t.is_sparse else t for t in (x, y))
                assert (x - y).abs().max() <= 1e-12 * (1 + y.abs().max()), (what, name, x, y)

def same_as_one_process(build, loss, num_steps=3, set_to_none=True, wrap_options={{}}, backward=None):
    # build() -> model; loss(model, rank, step) -> scalar; backward(losses, wrapped or None)
    rank, world = dist.get_rank(), dist.get_world_size()
    for strategy in STRATEGIES:
        torch.manual_seed(5)
        single = build().double()
        torch.manual_seed(5 + rank)
        wrapped = strategy.wrap(build().double(), **options(strategy), **wrap_options)
        optimizers = [torch.optim.SGD(m.parameters(), lr=0.1, momentum=0.5, weight_decay=0.1) for m in (wrapped, single)]
        for step in range(num_steps):
            for optimizer in optimizers:
                optimizer.zero_grad(set_to_none=set_to_none)
            loss(wrapped, rank, step).backward()
            (sum(loss(single, r, step) for r in range(world)) / world).backward()
            same(wrapped.module, single, (strategy.__name__, step))
            for optimizer in optimizers:
                optimizer.step()
        same(wrapped.module, single, (strategy.__name__, "end"))

def raises(kind, said, action):
    try:
        action()
    except kind as error:
        assert said in str(error), str(error)
    else:
        raise AssertionError("nothing was raised")

def wrap(model):
    rank, world = dist.get_rank(), dist.get_world_size()
"""
ALL = "[async_hook, bucketed, flat, hook, naive]"


@pytest.fixture
def on_ranks(lockstep, tmp_path):
    """Run ``body`` on every rank; it must come to its end without an exception."""

    def run(body, world_size=2, strategies=ALL):
        path = tmp_path / "body.py"
        head = HEAD.format(strategies=strategies)
        path.write_text(head + textwrap.indent(textwrap.dedent(body), "    ") + "\n    return naive.wrap(model)\n")
        check = "LS002" if world_size > 1 else "LS201"  # the former reads one scenario, and one rank has none to read
        report = lockstep.verify(str(path), world_size=world_size, checks=(check,))
        details = [rank.detail for scenario in report.scenarios for rank in scenario.ranks if rank.detail]
        assert not details, details[0]
        report.assert_pass()

    return run


MODELS = {
    "plain": ("nn.Sequential(nn.Linear(4, 5), nn.ReLU(), nn.Linear(5, 3))", "m(data(r, s)).square().mean()"),
    "frozen": (
        "nn.Sequential(nn.Linear(4, 5).requires_grad_(False), nn.ReLU(), nn.Linear(5, 3))",
        "m(data(r, s)).square().mean()",
    ),
    "multiply used": ("nn.Linear(4, 4)", "m(m(m(data(r, s)).tanh())).square().mean()"),
    "scalar and empty": ("Odd()", "m(data(r, s)).square().mean()"),
    "tied": ("Tied()", "m(data(r, s)).square().mean()"),
    "transposed": ("Transposed()", "m(data(r, s)).square().mean()"),
    "complex": ("Complex()", "m(data(r, s)).square().mean()"),
    "branch order": ("Branches()", "m(data(r, s), r + s).square().mean()"),
    "unused on one rank": ("Branches()", "m(data(r, s), r + s, 2).square().mean()"),
    "unused everywhere": ("Branches()", "m(data(r, s), 0, 3).square().mean()"),
    "checkpointed": ("Checkpointed(False)", "m(data(r, s)).square().mean()"),
    "checkpointed, re-entrant": ("Checkpointed(True)", "m(data(r, s).requires_grad_()).square().mean()"),
    "checkpointed, outermost": (
        "nn.Sequential(nn.Linear(4, 5), nn.ReLU(), nn.Linear(5, 3))",
        "checkpoint(m, data(r, s).requires_grad_(), use_reentrant=True).square().mean()",
    ),
    "dict output": ("Dict()", "m(data(r, s))['out'].square().mean()"),
    "sparse": (
        "nn.Sequential(nn.EmbeddingBag(9, 4, sparse=True, mode='sum'), nn.Linear(4, 2))",
        "m(rows(r, s)).square().mean()",
    ),
    "sparse, unused on rank 1": ("Rare()", "m(data(r, s), rows(r, s), r).square().mean()"),
}
CLASSES = """
    class Odd(nn.Module):
        def __init__(self):
            super().__init__()
            self.scale = nn.Parameter(torch.tensor(1.5)); self.empty = nn.Parameter(torch.empty(0, 3))
            self.linear = nn.Linear(4, 7)
        def forward(self, x): return self.linear(x) * self.scale + self.empty.sum()
    class Tied(nn.Module):
        def __init__(self):
            super().__init__()
            self.inlet, self.outlet = nn.Linear(4, 4), nn.Linear(4, 4)
            self.outlet.weight = self.inlet.weight
        def forward(self, x): return self.outlet(self.inlet(x).tanh())
    class Transposed(nn.Module):
        def __init__(self):
            super().__init__()
            self.weight = nn.Parameter(torch.randn(5, 4).t()); self.bias = nn.Parameter(torch.randn(5))
            self.wide = nn.Parameter(torch.randn(3, 5).to(memory_format=torch.contiguous_format))
        def forward(self, x): return (x @ self.weight + self.bias) @ self.wide.t()
    class Complex(nn.Module):
        def __init__(self):
            super().__init__()
            self.weight = nn.Parameter(torch.randn(4, 3, dtype=torch.complex128)); self.real = nn.Parameter(torch.randn(3))
            self.never = nn.Parameter(torch.randn(2, dtype=torch.complex128))
        def double(self): self.real.data = self.real.data.double(); return self
        def forward(self, x): return torch.view_as_real(x.to(torch.complex128) @ self.weight).sum(-1) * self.real
    class Branches(nn.Module):
        def __init__(self):
            super().__init__()
            self.parts = nn.ModuleList(nn.Linear(4, 4 if i % 2 else 4) for i in range(4)); self.head = nn.Linear(4, 2)
        def forward(self, x, first, how_many=4):
            order = [(first + i) % 4 for i in range(how_many)]
            return self.head(sum(self.parts[i](x) for i in order))
    class Checkpointed(nn.Module):
        def __init__(self, reentrant):
            super().__init__()
            self.blocks = nn.ModuleList(nn.Sequential(nn.Linear(4, 4), nn.Tanh()) for _ in range(3))
            self.head, self.reentrant = nn.Linear(4, 2), reentrant
        def forward(self, x):
            for block in (*self.blocks, self.blocks[0]):
                x = checkpoint(block, x, use_reentrant=self.reentrant)
            return self.head(x)
    class Dict(nn.Module):
        def __init__(self): super().__init__(); self.linear = nn.Linear(4, 2)
        def forward(self, x): return {"out": self.linear(x), "nothing": None}
    class Rare(nn.Module):
        def __init__(self):
            super().__init__(); self.embed = nn.EmbeddingBag(9, 4, sparse=True, mode="sum"); self.linear = nn.Linear(4, 2)
        def forward(self, x, rows, r): return self.linear(x + self.embed(rows) if r != 1 else x)
    def rows(r, s): return torch.tensor([[0, 2 + r], [s, 5], [r, r]])
"""


@pytest.mark.parametrize("world_size", [2, 3])
@pytest.mark.parametrize("name", MODELS)
def test_equal_to_one_process(on_ranks, name, world_size):
    build, loss = MODELS[name]
    weight_decay = "with warnings.catch_warnings():\n    warnings.simplefilter('ignore')\n"
    if name.startswith("sparse"):  # SGD's weight decay does not take sparse gradients
        weight_decay += "    SGD = torch.optim.SGD\n"
        weight_decay += "    torch.optim.SGD = lambda p, **k: SGD(p, lr=0.1)\n"
    body = textwrap.dedent(CLASSES) + weight_decay
    body += f"    same_as_one_process(lambda: {build}, lambda m, r, s: {loss})\n"
    on_ranks(body, world_size)


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


def test_an_exception_in_the_middle_of_backward(on_ranks):
    """On every rank, or on one alone whose peers wait for it: the next step is right, and nobody hangs."""
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


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ("m[0].weight = nn.Parameter(torch.ones(4, 4))", "parameter '0.weight' was replaced after wrapping"),
        ("m[0].bias = None", "parameter '0.bias' was removed after wrapping"),
        ("m[1] = nn.Linear(4, 4)", "submodule '1' was changed after wrapping"),
        ("m.append(nn.Linear(4, 4))", "submodule '3' was changed after wrapping"),
        ("m[0].weight.requires_grad_(False)", "parameter '0.weight' was frozen after wrapping"),
        ("m[2].weight.requires_grad_(True)", "parameter '2.weight' was unfrozen after wrapping"),
        ("m.double()", "parameter '0.weight' was changed from dtype torch.float32 to torch.float64 after wrapping"),
        ("m.to('meta')", "after wrapping"),
        ("m[0].extra = nn.Parameter(torch.ones(1))", "has got another number of parameters after wrapping"),
        ("m.load_state_dict(copy.deepcopy(m.state_dict()), assign=True)", "was replaced after wrapping"),
    ],
)
def test_a_model_that_changes_after_wrapping_is_refused_and_can_be_wrapped_again(on_ranks, change, said):
    on_ranks(f"""
        for strategy in STRATEGIES:
            m = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 4), nn.Linear(4, 4).requires_grad_(False))
            wrapped = strategy.wrap(m)
            wrapped(torch.ones(1, 4)).sum().backward()
            {change}
            raises(RuntimeError, {said!r}, lambda: wrapped(torch.ones(1, 4)))
            if "meta" in {change!r}:
                continue
            again = strategy.wrap(wrapped.unwrap())
            x = torch.full((1, 4), rank + 1.0, dtype=m[0].weight.dtype)
            again.zero_grad()
            again(x.to(m[-1].weight.dtype)).sum().backward()
            every = again.comm.gather_objects([None if p.grad is None else p.grad.tolist() for p in m.parameters()])
            assert every[0] == every[1], every
    """)


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


def test_copies_and_pickles_are_refused_with_a_way_out(on_ranks):
    on_ranks("""
        for strategy in STRATEGIES:
            wrapped = strategy.wrap(nn.Linear(4, 2))
            raises(TypeError, "deepcopy(wrapped.module)", lambda: copy.deepcopy(wrapped))
            raises(TypeError, "save wrapped.state_dict()", lambda: pickle.dumps(wrapped))
            raises(TypeError, "save wrapped.state_dict()", lambda: torch.save(wrapped, io.BytesIO()))
            averaged = copy.deepcopy(wrapped.module)  # an EMA, say: a bare model without hooks
            calls = wrapped.comm.num_calls
            averaged(torch.ones(1, 4)).sum().backward()
            assert wrapped.comm.num_calls == calls
    """)


def test_a_second_wrapping_is_refused(on_ranks):
    on_ranks("""
        for strategy in STRATEGIES:
            bare = nn.Linear(4, 2)
            wrapped = strategy.wrap(bare)
            raises(ValueError, "the model is wrapped already", lambda: naive.wrap(wrapped))
            raises(ValueError, "submodule '0' is wrapped already", lambda: naive.wrap(nn.Sequential(wrapped)))
            raises(ValueError, "belongs to a model that is wrapped already", lambda: naive.wrap(bare))
            raises(ValueError, "is wrapped already", lambda: naive.wrap(nn.parallel.DistributedDataParallel(nn.Linear(2, 2))))
            if rank == 1:
                only = strategy.wrap  # wrapped twice on one rank only: told on both
            other = nn.Linear(4, 2)
            kept = naive.wrap(other)
            raises(ValueError, "(on rank 1)", lambda: naive.wrap(other if rank == 1 else nn.Linear(4, 2)))
            loss = wrapped(torch.full((1, 4), rank + 1.0)).sum()
            del wrapped
            loss.backward()  # its graph has kept the wrapper
            assert bare.weight.grad.eq(1.5).all()
            del loss
            bare.zero_grad()
            again = strategy.wrap(bare)  # the first wrapper is gone, without waiting for the garbage collector
            again(torch.full((1, 4), rank + 1.0)).sum().backward()
            assert bare.weight.grad.eq(1.5).all()
    """)


def test_devices_and_uninitialised_parameters_are_refused(on_ranks):
    on_ranks(
        """
        for strategy in STRATEGIES:
            raises(ValueError, "on device 'meta', which the process group does not serve",
                   lambda: strategy.wrap(nn.Linear(4, 2, device="meta")))
            raises(ValueError, "'weight' is not initialised yet", lambda: strategy.wrap(nn.LazyLinear(2)))
            raises(ValueError, "nothing to synchronise", lambda: strategy.wrap(nn.ReLU()))
            raises(ValueError, "rank 0 has 'scale' (float32, shape [2], buffer), rank 1 has 'scale' (float32, shape [3], buffer)",
                   lambda: strategy.wrap(with_buffer(nn.Linear(2, 2), 2 + rank)))
            raises(ValueError, "(strides [4, 1] and [1, 3])", lambda: strategy.wrap(strided(nn.Linear(4, 3), rank == 1)))
    """.replace(
            "for strategy in",
            """def with_buffer(m, n):
            m.register_buffer("scale", torch.ones(n)); return m
        def strided(m, transposed):
            if transposed: m.weight = nn.Parameter(m.weight.detach().t().contiguous().t())
            return m
        for strategy in""",
            1,
        )
    )


def test_create_graph_is_refused_and_a_gradient_penalty_works(on_ranks):
    on_ranks("""
        def penalty(m, r, s):
            x = data(r, s).requires_grad_()
            out = m(x).pow(3).sum()
            (g,) = torch.autograd.grad(out, x, create_graph=True)
            return out + g.square().sum()
        same_as_one_process(lambda: nn.Sequential(nn.Linear(4, 3), nn.Tanh(), nn.Linear(3, 1)), penalty)
        for strategy in STRATEGIES:
            wrapped = strategy.wrap(nn.Linear(4, 1))
            raises(RuntimeError, "create_graph=True", lambda: wrapped(torch.ones(1, 4)).pow(3).sum().backward(create_graph=True))
    """)


def test_inside_and_outside_a_reentrant_checkpoint(on_ranks):
    """Right where everything waits for the end of backward; refused where a part had already been sent."""
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


@pytest.mark.parametrize("by_initial", [True, False])
def test_uneven_inputs(on_ranks, by_initial):
    on_ranks(
        f"""
        for strategy in STRATEGIES:
            torch.manual_seed(1 + rank)
            wrapped = strategy.wrap(nn.Sequential(nn.Linear(4, 3), nn.BatchNorm1d(3, affine=False)).double().eval().train(),
                                    **options(strategy))
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


def test_autocast_and_a_scaler_that_ranks_agree_on(on_ranks):
    on_ranks("""
        from ddp_core.amp import AgreedGradScaler
        for strategy in STRATEGIES:
            torch.manual_seed(1)
            wrapped = strategy.wrap(nn.Linear(4, 2), **options(strategy))
            optimizer = torch.optim.SGD(wrapped.parameters(), lr=0.1)
            scaler = AgreedGradScaler("cpu", comm=wrapped.comm, init_scale=2.0 ** (8 + rank), growth_interval=1)
            scales = []
            for step in range(4):
                optimizer.zero_grad()
                with torch.autocast("cpu", dtype=torch.bfloat16):
                    loss = wrapped(data(rank, step).float()).square().mean()
                scaler.scale(loss).backward()
                if step == 1 and rank == 1:
                    wrapped.module.weight.grad = wrapped.module.weight.grad * float("inf")  # after synchronisation
                before = wrapped.module.weight.detach().clone()
                scaler.step(optimizer)
                scaler.update()
                scales.append(scaler.get_scale())
                assert torch.equal(before, wrapped.module.weight) == (step == 1)
            assert scales == [512.0, 256.0, 512.0, 1024.0], scales
            every = wrapped.comm.gather_objects(wrapped.module.weight.tolist())
            assert every[0] == every[1]
    """)


def test_an_optimizer_inside_backward_is_refused(on_ranks):
    on_ranks("""
        from torch.distributed.optim import _apply_optimizer_in_backward
        for strategy in STRATEGIES:
            inner = nn.Linear(4, 2)
            wrapped = strategy.wrap(inner)
            _apply_optimizer_in_backward(torch.optim.SGD, inner.parameters(), {"lr": 0.1})
            raises(RuntimeError, "an optimizer runs inside backward", lambda: wrapped(torch.ones(1, 4)))
            inner = nn.Linear(4, 2)
            handle = inner.bias.register_post_accumulate_grad_hook(lambda p: None)
            raises(ValueError, "'bias' has a post-accumulate-grad hook of its own", lambda: strategy.wrap(inner))
            handle.remove()
            wrapped = strategy.wrap(inner)
            inner.bias.register_post_accumulate_grad_hook(lambda p: None)
            raises(RuntimeError, "has a post-accumulate-grad hook of its own", lambda: wrapped(torch.ones(1, 4)))
    """)


def test_an_undefined_gradient_is_none_at_all(on_ranks):
    on_ranks("""
        class Undefined(torch.autograd.Function):
            @staticmethod
            def forward(ctx, x): return x.clone()
            @staticmethod
            def backward(ctx, g): return None
        class Net(nn.Module):
            def __init__(self): super().__init__(); self.a, self.b, self.c = (nn.Linear(4, 4) for _ in range(3))
            def forward(self, x, r):
                b = self.b(x)
                return self.a(x) + (Undefined.apply(b) if r == 0 else b) + Undefined.apply(self.c(x))
        same_as_one_process(Net, lambda m, r, s: m(data(r, s), r).square().mean())
    """)


@pytest.mark.parametrize("world_size", [1, 2, 3])
def test_bf16_on_the_wire(on_ranks, world_size):
    """Half the bytes; off by two roundings at most, whatever the world size; the same bytes on every rank."""
    on_ranks(
        """
        for size in (1, 7, 1000):
            layer = nn.Linear(size, 3, bias=False)
            wrapped = bucketed.wrap(layer, wire="bf16")
            before = wrapped.comm.num_bytes
            mine = torch.randn(3, size, generator=torch.Generator().manual_seed(rank))
            (layer_out := wrapped.module.weight * mine).sum().backward()
            every = [torch.randn(3, size, generator=torch.Generator().manual_seed(r)).double() for r in range(world)]
            mean, magnitude = sum(every) / world, sum(e.abs() for e in every) / world
            error = (layer.weight.grad.double() - mean).abs()
            assert (error <= (2 * 2.0**-8 + 2.0**-16) * magnitude + 1e-7).all(), error.max()
            assert (error > 0).any() or size == 1
            grads = wrapped.comm.gather_objects(layer.weight.grad.tolist())
            assert all(g == grads[0] for g in grads)
            part = -(-3 * size // world)
            assert wrapped.comm.num_bytes - before == 2 * part * world + 2 * part  # to all, and back from all
        layer = nn.Linear(2, 1, bias=False)
        wrapped = bucketed.wrap(layer, wire="bf16")
        wrapped(torch.tensor([[float("inf"), float("nan")]])).sum().backward()
        assert layer.weight.grad[0, 0].isinf() and layer.weight.grad[0, 1].isnan()
        never = nn.ModuleList([nn.Linear(2, 1), nn.Linear(2, 1)])
        wrapped = bucketed.wrap(never, wire="bf16")
        never[0](torch.ones(1, 2)).sum().backward()
        assert never[1].weight.grad is None
    """,
        world_size,
    )


def test_evaluation_mode_synchronises_gradients_and_leaves_buffers(on_ranks):
    """Fine-tuning with a frozen BatchNorm: eval() for the layers, backward() all the same."""
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


def test_rank_0s_order_is_taken_over_by_all(on_ranks):
    """Registered in one order, used in another, and in yet another on rank 1: after the first backward rank 0's counts."""
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
        assert repr(wrapped.strategy) == "Bucketed(bucket_cap_mb=0.000123978; 2 buckets: 0.000122 + 0.000122 MB)", wrapped.strategy
        kept = wrapped.strategy.buckets
        wrapped(torch.ones(1, 4), [0, 1, 2, 3]).sum().backward()
        assert wrapped.strategy.buckets is kept  # once, not at every step
        fixed = bucketed.wrap(Net(), bucket_cap_mb=130 / 2**20, rebuild=False)
        before = fixed.strategy.plan()
        fixed(torch.ones(1, 4), [2, 0, 3, 1]).sum().backward()
        assert fixed.strategy.plan() == before
    """)


def test_two_wrapped_models_in_one_backward_need_groups_of_their_own(on_ranks):
    on_ranks("""
        for strategy in STRATEGIES:
            a, b = strategy.wrap(nn.Linear(4, 4)), strategy.wrap(nn.Linear(4, 2))
            raises(RuntimeError, "share a process group", lambda: b(a(torch.ones(1, 4))).sum().backward())
            torch.manual_seed(1)
            bare = [nn.Linear(4, 4).double(), nn.Linear(4, 2).double()]
            pair = [strategy.wrap(copy.deepcopy(m), comm=Comm(dist.new_group())) for m in bare]
            for step in range(2):
                for m in (*bare, *pair): m.zero_grad()
                pair[1](pair[0](data(rank, step))).square().mean().backward()
                (sum(bare[1](bare[0](data(r, step))).square().mean() for r in range(world)) / world).backward()
                for m, w in zip(bare, pair): same(w.module, m, strategy.__name__)
            for step in range(2):  # one after the other, as in a GAN, needs nothing
                c, d = strategy.wrap(nn.Linear(4, 4)), strategy.wrap(nn.Linear(4, 2))
                c(torch.ones(1, 4)).sum().backward(); d(torch.ones(1, 4)).sum().backward()
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


def test_tiny_negative_gradients_are_not_taken_for_absent(on_ranks):
    on_ranks("""
        for strategy in STRATEGIES:
            for kwargs in ({}, {"wire": "bf16"}) if strategy is bucketed else ({},):
                net = nn.ParameterList([nn.Parameter(torch.ones(3)), nn.Parameter(torch.ones(1))])
                wrapped = strategy.wrap(net, **kwargs)
                (net[1] * 1.0).sum().backward()
                net.zero_grad()
                loss = net[1].sum() + ((net[0] * torch.tensor([-1e-45, 1.0, 1.0])).sum() if rank == 0 else 0)
                loss.backward()
                assert net[0].grad is not None and net[0].grad[1:].eq(0.5).all(), (strategy, net[0].grad)
    """)


def test_a_fused_optimizer_skips_a_step_that_overflowed(on_ranks):
    on_ranks("""
        from ddp_core.amp import AgreedGradScaler
        for make in (torch.optim.SGD, torch.optim.Adam, torch.optim.AdamW):
            wrapped = bucketed.wrap(nn.Linear(4, 2))
            optimizer = make(wrapped.parameters(), lr=0.1, fused=True)
            scaler = AgreedGradScaler("cpu", comm=wrapped.comm, init_scale=1024.0)
            before = wrapped.module.weight.detach().clone()
            scaler.scale(wrapped(torch.full((1, 4), float("inf"))).sum()).backward()
            scaler.step(optimizer); scaler.update()
            assert torch.equal(before, wrapped.module.weight) and scaler.get_scale() == 512.0
        if rank == 1:
            scaler.load_state_dict({**scaler.state_dict(), "scale": 4096.0})
        optimizer.zero_grad()
        scaler.scale(wrapped(torch.ones(1, 4)).sum()).backward()
        raises(RuntimeError, "load the scaler's state on every rank", lambda: scaler.step(optimizer))
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
