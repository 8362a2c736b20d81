"""Situations that our strategies refuse rather than compute wrongly, and their messages."""

from __future__ import annotations

import pytest


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
            theirs = nn.parallel.DistributedDataParallel(nn.Linear(2, 2))
            raises(ValueError, "is wrapped already", lambda: naive.wrap(theirs))
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
            said = "rank 0 has 'scale' (float32, shape [2], buffer), rank 1 has 'scale' (float32, shape [3], buffer)"
            raises(ValueError, said, lambda: strategy.wrap(with_buffer(nn.Linear(2, 2), 2 + rank)))
            said = "(strides [4, 1] and [1, 3])"
            raises(ValueError, said, lambda: strategy.wrap(strided(nn.Linear(4, 3), rank == 1)))
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
            loss = wrapped(torch.ones(1, 4)).pow(3).sum()
            raises(RuntimeError, "create_graph=True", lambda: loss.backward(create_graph=True))
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
