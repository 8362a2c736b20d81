"""Numerical situations: narrow dtypes, scalers, tiny and absent gradients."""

from __future__ import annotations

import pytest


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


@pytest.mark.parametrize("world_size", [1, 2, 3])
def test_bf16_on_the_wire(on_ranks, world_size):
    """Half the bytes; an error of at most two roundings at any world size; the same bytes on every rank."""
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
