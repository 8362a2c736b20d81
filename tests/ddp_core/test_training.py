"""The training loop on real ranks against one process, bit for bit: edge cases that published loops get wrong.

Arithmetic is exact throughout: whole numbers, losses linear in the output, divisors that are powers of two. So "equal"
means equal in every bit, for any order of summation.
"""

from __future__ import annotations

import copy
import textwrap

import pytest
import torch
from torch import nn

from ddp_core.memory import activation_bytes, memory_report
from ddp_core.training import StepRecord, accuracy, evaluate, move, num_samples, supervised, train

HEAD = """
import copy
import torch, torch.distributed as dist
from torch import nn
from ddp_core import Comm
from ddp_core.communicator import TorchCommunicator
from ddp_core.data import ShardSampler
from ddp_core.strategies import bucketed, naive, synchronizer, torch_ddp
from ddp_core.training import accuracy, evaluate, supervised, train, weight
from torch.utils.data import DataLoader, DistributedSampler

WRAPPERS = (naive.wrap, bucketed.wrap, torch_ddp.wrap, synchronizer.wrap)

def numbers(*shape, seed):
    return torch.randint(-2, 3, shape, generator=torch.Generator().manual_seed(seed)).float()

def net():
    model = nn.Sequential(nn.Linear(4, 3), nn.Linear(3, 2))
    for seed, parameter in enumerate(model.parameters()):
        parameter.data = numbers(*parameter.shape, seed=seed)
    return model

def linear(output, target):  # the mean over rows; exact for 1, 2, 4, ... of them
    return (output * target).sum() / len(target)

def sgd(model):
    return torch.optim.SGD(model.parameters(), lr=0.5, momentum=0.5)

def same(one, two):
    return all(torch.equal(a, b) for a, b in zip(one.parameters(), two.parameters(), strict=True))

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


@pytest.mark.parametrize("world_size", [2, 4])
def test_an_incomplete_last_group_is_averaged_over_what_it_holds(on_ranks, world_size):
    """Five micro-batches in groups of four: the second step holds one, and divides by one."""
    on_ranks(
        """
        data = [[(numbers(2, 4, seed=10 * r + m), numbers(2, 2, seed=99 - 10 * r - m)) for m in range(5)]
                for r in range(world)]
        alone = net()
        optimizer = sgd(alone)
        for first, size in ((0, 4), (4, 1)):
            optimizer.zero_grad()
            for r in range(world):
                for m in range(first, first + size):
                    inputs, target = data[r][m]
                    (linear(alone(inputs), target) / (size * world)).backward()
            optimizer.step()
        for wrapper in WRAPPERS:
            own = net()
            records = train(wrapper(own), data[rank], sgd(own), supervised(linear), model=own, num_micro_batches=4)
            assert same(own, alone), (wrapper, list(own.parameters()), list(alone.parameters()))
            assert [(r.step, r.samples, r.micro_batches) for r in records] == [(0, 8, 4), (1, 2, 1)]
            assert all(r.seconds > 0 for r in records)
            start = net()
            losses = [linear(start(inputs), target).item() for inputs, target in data[rank][:4]]
            assert records[0].loss == sum(losses) / 4
        """,
        world_size,
    )


def test_no_sync_is_used_for_all_but_the_last_of_a_group(on_ranks):
    on_ranks("""
        own = net()
        wrapped = naive.wrap(own)
        before = wrapped.comm.num_calls
        data = [(numbers(2, 4, seed=m), numbers(2, 2, seed=m)) for m in range(5)]
        train(wrapped, data, sgd(own), supervised(linear), num_micro_batches=3)
        assert wrapped.comm.num_calls - before == 2 * 4, wrapped.comm
    """)


def test_uneven_batches_weigh_by_their_samples(on_ranks):
    """1, 2, 4 and 1 samples on four ranks: the mean of means is wrong, the weighted mean equals the large batch's."""
    on_ranks(
        """
        sizes = (1, 2, 4, 1)
        inputs, target = numbers(8, 4, seed=5), numbers(8, 2, seed=6)
        alone = net()
        optimizer = sgd(alone)
        linear(alone(inputs), target).backward()
        gradients = [p.grad.clone() for p in alone.parameters()]
        optimizer.step()
        mine = slice(sum(sizes[:rank]), sum(sizes[:rank + 1]))
        for comm in (Comm(), TorchCommunicator()):
            assert weight(comm, sizes[rank]) == (0.5, 1.0, 2.0, 0.5)[rank]
        try:
            weight(comm, 0)
        except ValueError as error:
            assert "every rank has a count of 0" in str(error)
        else:
            raise AssertionError("accepted")
        for wrapper in WRAPPERS:
            own = net()
            wrapped = wrapper(own)
            forward = own if wrapper is synchronizer.wrap else wrapped
            (linear(forward(inputs[mine]), target[mine]) * weight(comm, sizes[rank])).backward()
            if wrapper is synchronizer.wrap:
                wrapped.sync_gradients(own)
            assert all(torch.equal(p.grad, g) for p, g in zip(own.parameters(), gradients, strict=True)), wrapper

            own, plain = net(), net()
            batches = [(inputs[mine], target[mine])]
            (record,) = train(wrapper(own), batches, sgd(own), supervised(linear), model=own, comm=comm,
                              count=lambda batch: len(batch[0]))
            assert same(own, alone), wrapper
            assert record.samples == sizes[rank]
            train(wrapper(plain), batches, sgd(plain), supervised(linear), model=plain)
            assert not same(plain, alone)
        """,
        world_size=4,
    )


def test_uneven_counts_inside_and_across_groups(on_ranks):
    """Token counts differ by micro-batch and by rank, and every token has the same weight."""
    on_ranks("""
        sizes = ((1, 2, 1), (4, 1, 1))  # steps of 1 + 2 + 4 + 1 = 8 and of 1 + 1 = 2 rows
        rows = [[numbers(size, 6, seed=10 * r + m) for m, size in enumerate(sizes[r])] for r in range(2)]
        alone = net()
        optimizer = sgd(alone)
        for group in ((0, 1), (2,)):
            optimizer.zero_grad()
            batch = torch.cat([rows[r][m] for r in range(2) for m in group])
            linear(alone(batch[:, :4]), batch[:, 4:]).backward()
            optimizer.step()
        for wrapper in WRAPPERS:
            own = net()
            batches = [(part[:, :4], part[:, 4:]) for part in rows[rank]]
            records = train(wrapper(own), batches, sgd(own), supervised(linear), model=own, num_micro_batches=2,
                            comm=Comm(), count=lambda batch: len(batch[0]))
            assert same(own, alone), wrapper
            assert [record.samples for record in records] == [[3, 1], [5, 1]][rank]
    """)


def test_clipping_comes_after_synchronisation(on_ranks):
    """Every rank clips the mean gradient by its norm: bit for bit as one process, whether or not clipping is active."""
    on_ranks("""
        data = [(numbers(4, 4, seed=r), numbers(4, 2, seed=50 + r)) for r in range(world)]
        for limit in (0.25, 1e6, None):
            alone = net()
            optimizer = sgd(alone)
            inputs, target = (torch.cat(parts) for parts in zip(*data, strict=True))
            linear(alone(inputs), target).backward()
            norm = nn.utils.clip_grad_norm_(alone.parameters(), limit if limit is not None else 1e9)
            optimizer.step()
            for wrapper in WRAPPERS:
                own = net()
                (record,) = train(wrapper(own), [data[rank]], sgd(own), supervised(linear), model=own, clip_norm=limit)
                assert same(own, alone), (wrapper, limit)
                assert record.grad_norm == norm.item() > 0.25
    """)


@pytest.mark.parametrize("num_samples", [10, 3])
def test_each_sample_is_evaluated_once(on_ranks, num_samples):
    """10 samples over 4 ranks (and 3: one rank has none); DistributedSampler would count 12 (and 4)."""
    on_ranks(
        f"""
        num_samples = {num_samples}
        inputs = numbers(num_samples, 4, seed=1)
        labels = torch.arange(num_samples) % 2
        data = list(zip(inputs, labels, strict=True))
        own = net()
        right = (own(inputs).argmax(1) == labels).sum().item()
        shard = DataLoader(data, batch_size=2, sampler=ShardSampler(num_samples, rank, world))
        comm = Comm()
        found = evaluate(own, shard, {{"accuracy": accuracy}}, comm=comm)
        assert found == {{"accuracy": right / num_samples}}, found
        assert comm.num_calls == 1
        seen = torch.tensor([sum(len(batch[0]) for batch in shard)])
        comm.all_reduce(seen)
        padded = torch.tensor([len(list(DistributedSampler(data, world, rank, shuffle=False)))])
        comm.all_reduce(padded)
        assert (seen.item(), padded.item()) == (num_samples, -(-num_samples // world) * world)
        try:
            evaluate(own, [], {{"accuracy": accuracy}}, comm=comm)
        except ValueError as error:
            assert "metric 'accuracy' counted nothing on any rank" in str(error)
        else:
            raise AssertionError("accepted")
        """,
        world_size=4,
    )


# --- one process -------------------------------------------------------------------------------------------------


def test_evaluation_leaves_every_module_in_its_mode():
    model = nn.Sequential(nn.Linear(2, 2), nn.Dropout(), nn.BatchNorm1d(2).eval())
    batch = (torch.ones(3, 2), torch.zeros(3, dtype=torch.long))

    def broken(output, batch):
        assert not model.training
        assert not torch.is_grad_enabled()
        raise KeyError

    with pytest.raises(KeyError):
        evaluate(model, [batch], {"broken": broken})
    assert [module.training for module in model] == [True, True, False]
    assert model.training
    assert 0 <= evaluate(model, [batch], {"accuracy": accuracy})["accuracy"] <= 1


def test_training_without_ranks_and_what_is_refused():
    torch.manual_seed(0)
    model = nn.Linear(2, 1)
    batches = [(torch.ones(3, 2), torch.ones(3, 1))] * 4
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    records = train(model, batches, optimizer, supervised(nn.functional.mse_loss), device="cpu")
    assert isinstance(records[0], StepRecord)
    assert len(records) == 4
    assert records[-1].loss < records[0].loss
    with pytest.raises(ValueError, match="num_micro_batches must be at least 1, got 0"):
        train(model, batches, optimizer, supervised(nn.functional.mse_loss), num_micro_batches=0)
    with pytest.raises(ValueError, match="give comm as well"):
        train(model, batches, optimizer, supervised(nn.functional.mse_loss), count=len)


def test_batches_of_any_form():
    tensor = torch.zeros(5, 2)
    for batch in (tensor, (tensor, tensor), {"input_ids": tensor, "labels": tensor}):
        assert num_samples(batch) == 5
        assert num_samples(move(batch, "meta")) == 5
        assert move(batch, None) is batch
    assert move({"a": [tensor]}, "meta")["a"][0].is_meta


# --- memory ------------------------------------------------------------------------------------------------------


def test_memory_is_reported_to_the_byte():
    model = nn.Sequential(nn.Linear(10, 20), nn.ReLU(), nn.Linear(20, 5))
    size = (10 * 20 + 20 + 20 * 5 + 5) * 4
    optimizer = torch.optim.AdamW(model.parameters())
    inputs = torch.randn(4, 10)
    before = memory_report(model, optimizer)
    assert (before.parameters, before.gradients, before.optimizer_state) == (size, 0, 0)
    assert before.activations is None
    model(inputs).sum().backward()
    optimizer.step()
    weights = copy.deepcopy(model.state_dict())
    report = memory_report(model, optimizer, lambda: model(inputs).sum())
    # AdamW: two moments per element and a float32 step counter per parameter. Saved for backward: the input, and the
    # ReLU's output, which the ReLU and the next layer both save, counted once.
    assert (report.parameters, report.gradients) == (size, size)
    assert report.optimizer_state == 2 * size + 4 * 4
    assert report.activations == (4 * 10 + 4 * 20) * 4
    assert report.total == 4 * size + 16 + 480
    assert all(torch.equal(weights[name], value) for name, value in model.state_dict().items())
    table = str(report)
    assert "optimizer state" in table
    assert f"{report.total:,}" in table
    assert "not measured" in str(before)


def test_shared_parameters_and_buffers_count_once_and_are_no_activations():
    layer, norm = nn.Linear(6, 6, bias=False), nn.BatchNorm1d(6).eval()
    model = nn.Sequential(layer, layer, norm)
    report = memory_report(model, torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9))
    assert report.parameters == (36 + 12) * 4
    assert report.buffers == 12 * 4 + 8
    inputs = torch.randn(3, 6)
    assert activation_bytes(model, lambda: model(inputs).sum()) == 3 * 3 * 6 * 4  # input, and two layers' outputs


def test_checkpointing_keeps_less():
    from torch.utils.checkpoint import checkpoint

    block = nn.Sequential(*[nn.Sequential(nn.Linear(16, 16), nn.Tanh()) for _ in range(4)])
    inputs = torch.randn(8, 16, requires_grad=True)
    whole = activation_bytes(block, lambda: block(inputs).sum())
    less = activation_bytes(block, lambda: checkpoint(block, inputs, use_reentrant=False).sum())
    assert whole == 5 * 8 * 16 * 4
    assert less == 8 * 16 * 4
