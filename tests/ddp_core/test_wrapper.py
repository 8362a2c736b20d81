"""DataParallel on real ranks: its refusals and messages, no_sync, unused parameters, buffers.

The verifier's own fork server forks the ranks for a strategy file whose ``wrap`` makes the assertions: a rank that
fails one raises, and the report shows its traceback.
"""

from __future__ import annotations

import textwrap

import pytest

HEAD = """
import copy
import torch, torch.distributed as dist
from torch import nn
from ddp_core import Comm, DataParallel
from ddp_core.strategies import bucketed, flat, naive
from ddp_core.strategies.bucketed import Bucketed
from ddp_core.strategies.naive import Naive

def wrap(model):
    rank, world = dist.get_rank(), dist.get_world_size()
"""


@pytest.fixture
def on_ranks(lockstep, tmp_path):
    """Run ``body`` inside wrap() on every rank; it must end without an exception."""

    def run(body, world_size=2):
        path = tmp_path / "body.py"
        path.write_text(HEAD + textwrap.indent(textwrap.dedent(body), "    ") + "\n    return naive.wrap(model)\n")
        report = lockstep.verify(str(path), world_size=world_size, checks=("LS002",))  # reads one scenario
        details = [rank.detail for scenario in report.scenarios for rank in scenario.ranks if rank.detail]
        assert not details, details[0]
        report.assert_pass()

    return run


@pytest.mark.parametrize(
    ("build", "said"),
    [
        (
            "nn.Linear(3 + rank, 2)",
            "rank 0 has 'weight' (float32, shape [2, 3]), rank 1 has 'weight' (float32, shape [2, 4])",
        ),
        (
            "nn.ModuleDict({k: nn.Linear(2, 2) for k in ('ab', 'ba')[rank]})",
            "'a.weight' (float32, shape [2, 2]), rank 1 has 'b.weight'",
        ),
        ("nn.Linear(2, 2).to((torch.float32, torch.float64)[rank])", "rank 1 has 'weight' (float64, shape [2, 2])"),
        ("nn.Sequential(*[nn.Linear(2, 2) for _ in range(1 + rank)])", "rank 0 has 2 parameters, rank 1 has 4"),
        ("nn.Linear(2, 2).requires_grad_(rank == 1)", "'weight' (float32, shape [2, 2], frozen), rank 1"),
        ("nn.Sequential(nn.Linear(2, 2).requires_grad_(rank == 1), nn.Linear(2, 2))", "shape [2, 2], frozen), rank 1"),
    ],
)
def test_replicas_that_disagree_are_refused_on_every_rank(on_ranks, build, said):
    on_ranks(f"""
        for strategy in (naive, flat, bucketed):
            try:
                strategy.wrap({build})
            except ValueError as error:
                assert {said!r} in str(error), str(error)
            else:
                raise AssertionError("accepted")
    """)


def test_a_model_with_nothing_to_train_is_refused(on_ranks):
    on_ranks("""
        try:
            naive.wrap(nn.Linear(2, 2).requires_grad_(False))
        except ValueError as error:
            assert "nothing to synchronise" in str(error)
        else:
            raise AssertionError("accepted")
    """)


def test_no_sync_is_silent_and_restored_after_an_exception(on_ranks):
    on_ranks("""
        for strategy in (naive, flat, bucketed):
            layer = strategy.wrap(nn.Linear(2, 1, bias=False))
            x = torch.full((1, 2), float(rank + 1))
            calls = layer.comm.num_calls
            try:
                with layer.no_sync():
                    with layer.no_sync():
                        layer(x).sum().backward()
                    raise KeyError
            except KeyError:
                pass
            assert layer.comm.num_calls == calls
            assert layer.module.weight.grad.eq(rank + 1).all()
            layer(x).sum().backward()
            assert layer.comm.num_calls > calls
            assert layer.module.weight.grad.eq(3.0).all(), layer.module.weight.grad  # 2 * mean(1, 2)
    """)


def test_a_parameter_unused_on_one_rank_or_on_all(on_ranks):
    on_ranks("""
        for strategy in (naive, flat, bucketed):
            torch.manual_seed(0)
            pair = nn.ModuleDict({"used": nn.Linear(2, 1, bias=False), "odd": nn.Linear(2, 1, bias=False),
                                  "never": nn.Linear(2, 1, bias=False)})
            wrapped = strategy.wrap(pair)
            out = pair["used"](torch.ones(1, 2))
            if rank == 1:
                out = out + pair["odd"](torch.full((1, 2), 4.0))
            out.sum().backward()
            assert pair["used"].weight.grad.eq(1).all()
            assert pair["odd"].weight.grad.eq(2).all(), pair["odd"].weight.grad
            assert pair["never"].weight.grad is None  # as in a single process
    """)


def test_an_exception_in_backward_leaves_the_next_step_right(on_ranks):
    on_ranks("""
        class Bad(torch.autograd.Function):
            @staticmethod
            def forward(ctx, x): return x.clone()
            @staticmethod
            def backward(ctx, g): raise ArithmeticError("in backward")
        for strategy in (naive, flat):
            first, last = nn.Linear(2, 2, bias=False), nn.Linear(2, 1, bias=False)
            layer = strategy.wrap(nn.Sequential(first, last))
            try:
                last(Bad.apply(first(torch.ones(1, 2)))).sum().backward()
            except ArithmeticError:
                pass
            layer.zero_grad()
            layer(torch.full((1, 2), float(rank))).sum().backward()
            every = layer.comm.gather_objects(first.weight.grad.tolist())
            assert every[0] == every[1], every
    """)


def test_buffers_follow_rank_0(on_ranks):
    on_ranks("""
        norm = naive.wrap(nn.BatchNorm1d(2))
        for step in range(2):
            norm(torch.randn(8, 2) + 10 * rank).sum().backward()
        norm(torch.randn(8, 2))
        every = norm.comm.gather_objects(norm.module.num_batches_tracked.item())
        assert every == [3, 3], every
    """)


def test_strided_gradients_are_reduced_whole(on_ranks):
    """gloo treats a view with holes as a dense tensor; ``Comm`` prevents that."""
    on_ranks("""
        comm = Comm()
        holes = torch.arange(12.0).view(6, 2)[:, 0].mul_(1)
        comm.all_reduce(holes)
        assert holes.tolist() == [0.0, 4.0, 8.0, 12.0, 16.0, 20.0], holes
        try:
            comm.all_reduce_async(torch.ones(4, 2)[:, 0])
        except ValueError as error:
            assert "dense" in str(error)
        else:
            raise AssertionError("accepted")
        assert comm.num_bytes == 24 and comm.num_calls == 1, comm
    """)


def test_the_plan_is_readable_and_options_are_checked(on_ranks):
    on_ranks("""
        pair = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 4))
        wrapped = bucketed.wrap(pair, bucket_cap_mb=0.0001, first_bucket_cap_mb=0.00001)
        assert wrapped.strategy.plan() == [["1.bias"], ["1.weight", "0.bias"], ["0.weight"]], wrapped.strategy.plan()
        assert "bucket_cap_mb=0.0001" in repr(wrapped)
        try:
            bucketed.wrap(nn.Linear(2, 2), bucket_cap_mb=0)
        except ValueError as error:
            assert "bucket_cap_mb must be greater than 0, got 0" in str(error)
        else:
            raise AssertionError("accepted")
    """)


def test_bytes_are_equal_and_calls_fewer(on_ranks):
    on_ranks("""
        counts = {}
        for strategy in (naive, flat, bucketed):
            layer = strategy.wrap(nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 4)))
            before = layer.comm.num_calls, layer.comm.num_bytes
            layer(torch.ones(1, 4)).sum().backward()
            name = strategy.__name__.rpartition(".")[2]
            counts[name] = layer.comm.num_calls - before[0], layer.comm.num_bytes - before[1]
        assert counts == {"naive": (4, 160), "flat": (1, 160), "bucketed": (1, 160)}, counts
    """)


def test_without_a_process_group():
    from torch import nn

    from ddp_core.strategies import naive

    with pytest.raises(RuntimeError, match="init_process_group"):
        naive.wrap(nn.Linear(2, 2))
