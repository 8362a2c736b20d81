"""The synchroniser on real ranks: published counts to the digit, its caveats, and foreign synchronisers as published.

Ranks are forked by the verifier's fork server, as in ``test_wrapper.py``. The published figures come from two public
reports: 235 steps of an MNIST CNN with and without bucketing, and all-reduces per step of SmolLM2-360M on Yelp.
"""

from __future__ import annotations

import math
import textwrap

import pytest
import torch
import torch.distributed as dist
from hypothesis import given, settings
from hypothesis import strategies as st

from ddp_core.models import llama, mnist_cnn, smollm2_360m
from ddp_core.strategies.synchronizer import wrap

HEAD = """
import torch, torch.distributed as dist
from torch import nn
from ddp_core.communicator import TorchCommunicator
from ddp_core.strategies import naive
from ddp_core.strategies.synchronizer import wrap as pair
from ddp_core.synchronizer import Synchronizer

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


# --- the published figures ---------------------------------------------------------------------------------------


def test_the_mnist_cnn_has_the_published_size():
    sizes = [p.numel() for p in mnist_cnn().parameters()]
    assert (sum(sizes), len(sizes)) == (206_922, 8)
    assert mnist_cnn()(torch.zeros(2, 1, 28, 28)).shape == (2, 10)


def test_235_steps_give_the_published_calls_and_bytes():
    """235 steps is one epoch of MNIST's 60,000 images on 4 ranks in batches of 64 (15,000 / 64 = 234.4).

    Counts are per rank, so one rank suffices; ``test_mpi.py`` repeats it on several, over MPI and gloo.
    """
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    try:
        net = mnist_cnn()
        synchronizer = wrap(net)
        comm = synchronizer.comm
        assert (comm.num_calls, comm.num_broadcasts, comm.num_broadcast_bytes) == (0, 8, 827_688)
        net(torch.randn(2, 1, 28, 28)).sum().backward()
        counts = {}
        for use_bucketing in (True, False):
            comm.reset_counts()
            for _ in range(math.ceil(60_000 / 4 / 64)):
                synchronizer.sync_gradients(net, use_bucketing=use_bucketing)
            counts[use_bucketing] = comm.num_calls, comm.num_bytes, comm.num_bytes / comm.num_calls
    finally:
        dist.destroy_process_group()
    assert counts == {True: (235, 194_506_680, 827_688), False: (1880, 194_506_680, 103_461)}
    assert "num_calls=1880, num_bytes=194506680, num_broadcasts=0" in repr(synchronizer)


def test_291_all_reduces_a_step_are_smollm2_and_a_classifier():
    """290 gradients with the tied language-model head; the report's 291 are those and its five-star classifier.

    Its 582 calls are two traced steps without accumulation, its 291 one synchronisation in as many batches.
    """
    language_model = list(smollm2_360m(device="meta").parameters())
    assert (len(language_model), sum(p.numel() for p in language_model)) == (290, 361_821_120)
    classifier = list(smollm2_360m(num_labels=5, device="meta").parameters())
    assert (len(classifier), 2 * len(classifier)) == (291, 582)
    assert sum(p.numel() for p in classifier) - sum(p.numel() for p in language_model) == 5 * 960
    assert all(p.is_meta for p in classifier)


# --- the models --------------------------------------------------------------------------------------------------

SMALL = {"vocab_size": 29, "hidden_size": 24, "num_layers": 2, "num_heads": 6, "num_kv_heads": 2}


def test_a_llama_looks_back_only_and_knows_positions():
    torch.manual_seed(0)
    model = llama(**SMALL, intermediate_size=40, dtype=torch.float64)
    tokens = torch.randint(0, 29, (2, 7))
    changed = tokens.clone()
    changed[:, 4] = (tokens[:, 4] + 1) % 29
    before, after = model(tokens), model(changed)
    assert before.shape == (2, 7, 29)
    assert torch.equal(before[:, :4], after[:, :4])
    assert not torch.equal(before[:, 5:], after[:, 5:])
    assert not torch.allclose(model(tokens.flip(1))[:, -1], before[:, -1])
    with pytest.raises(ValueError, match="multiple of num_kv_heads 4"):
        llama(**{**SMALL, "num_kv_heads": 4}, intermediate_size=40)


def test_a_classifier_ignores_padding_on_the_right():
    torch.manual_seed(0)
    model = llama(**SMALL, intermediate_size=40, num_labels=5, dtype=torch.float64)
    tokens = torch.randint(0, 29, (1, 5))
    padded = torch.cat([tokens, torch.zeros(1, 3, dtype=torch.long)], dim=1)
    mask = torch.tensor([[1, 1, 1, 1, 1, 0, 0, 0]])
    torch.testing.assert_close(model(padded, mask), model(tokens), rtol=1e-12, atol=1e-12)


# --- the caveats -------------------------------------------------------------------------------------------------


def test_rank_dependent_unused_frozen_tied_mixed_and_oversized_parameters(on_ranks):
    """The mean is exact to the bit, in three bucket sizes and without buckets; absent gradients count as zeros."""
    on_ranks(
        """
        class Odd(nn.Module):
            def __init__(self):
                super().__init__()
                self.first, self.second = nn.Linear(4, 4), nn.Linear(4, 4)
                self.tied = self.first
                self.frozen = nn.Linear(4, 4).requires_grad_(False)
                self.double, self.big = nn.Linear(3, 2, dtype=torch.float64), nn.Linear(40, 10)
                self.rows = nn.Embedding(5, 3, sparse=True)
                self.across = nn.Parameter(torch.zeros(3, 5).t())
                self.never = nn.Parameter(torch.zeros(()))
                self.register_buffer("seen", torch.full((2,), rank))
        for cap, use_bucketing in ((25, True), (1e-4, True), (1e-6, True), (25, False)):
            net = Odd()
            synchronizer = pair(net, use_bucketing=use_bucketing, bucket_cap_mb=cap)
            assert net.seen.tolist() == [0, 0]
            every = synchronizer.comm.gather_objects(net.frozen.weight.sum().item())
            assert len(set(every)) == 1, every
            for name, parameter in net.named_parameters():
                unused = name == "never" or (name.startswith("second") and rank == 1)
                if parameter.requires_grad and not unused and name != "rows.weight":
                    parameter.grad = torch.full_like(parameter, 3.0 * (rank + 1))
            net.rows(torch.tensor([rank])).sum().backward()
            synchronizer.sync_gradients(net)
            for name, parameter in net.named_parameters():
                if name.startswith("frozen") or name == "never":
                    assert parameter.grad is None
                elif name == "rows.weight":
                    assert torch.equal(parameter.grad[:3], torch.full((3, 3), 1.0) / 3), parameter.grad
                    assert not parameter.grad[3:].any()
                else:
                    mean = (1 + 3) if name.startswith("second") else 6.0
                    assert parameter.grad.eq(mean).all(), (name, parameter.grad)
                    assert parameter.grad.dtype == parameter.dtype
        """,
        world_size=3,
    )


def test_buckets_are_planned_alike_and_the_last_one_travels(on_ranks):
    on_ranks("""
        net = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 4), nn.Linear(30, 1))
        synchronizer = pair(net, bucket_cap_mb=0.0001)  # 104 bytes
        planned = synchronizer.buckets(net)
        assert planned == [["2.bias", "2.weight"], ["1.bias", "1.weight", "0.bias"], ["0.weight"]], planned
        for parameter in net.parameters():
            parameter.grad = torch.full_like(parameter, float(rank))
        synchronizer.sync_gradients(net)
        assert synchronizer.comm.num_calls == 3
        assert all(p.grad.eq(0.5).all() for p in net.parameters())
    """)


def test_thirds_are_divided_not_multiplied(on_ranks):
    """7 times the float32 nearest to 1/7 is not 1: a mean by multiplication is off by one unit in the last place."""
    on_ranks(
        """
        net = nn.Linear(64, 1)
        synchronizer = pair(net)
        net.weight.grad = torch.arange(64.0).view(1, 64)
        synchronizer.sync_gradients(net)
        assert torch.equal(net.weight.grad, torch.arange(64.0).view(1, 64))
        """,
        world_size=7,
    )


def test_accumulation_unfreezing_and_two_models(on_ranks):
    on_ranks("""
        first, second = nn.Linear(2, 1, bias=False), nn.Linear(2, 1, bias=False).requires_grad_(False)
        synchronizer = Synchronizer(TorchCommunicator())
        for net in (first, second):
            synchronizer.broadcast_parameters(net)
        for micro in range(3):
            first(torch.full((1, 2), float(rank))).sum().backward()
        synchronizer.sync_gradients(first)
        assert first.weight.grad.eq(1.5).all(), first.weight.grad
        calls = synchronizer.comm.num_calls
        synchronizer.sync_gradients(second)
        assert synchronizer.comm.num_calls == calls
        second.requires_grad_(True)
        second(torch.full((1, 2), float(rank))).sum().backward()
        synchronizer.sync_gradients(second)
        assert second.weight.grad.eq(0.5).all(), second.weight.grad
    """)


@pytest.mark.parametrize(
    ("build", "said"),
    [
        ("nn.Linear(3 + rank, 2)", "'weight' (float32, shape [2, 3]), rank 1 has 'weight' (float32, shape [2, 4])"),
        ("nn.ModuleDict({k: nn.Linear(2, 2) for k in ('ab', 'ba')[rank]})", "rank 1 has 'b.weight'"),
        ("nn.Linear(2, 2).to((torch.float32, torch.float64)[rank])", "rank 1 has 'weight' (float64, shape [2, 2])"),
        ("nn.BatchNorm1d(2).double() if rank else nn.BatchNorm1d(2)", "rank 1 has 'weight' (float64, shape [2])"),
        (
            "nn.BatchNorm1d(2, track_running_stats=rank == 0)",
            "rank 1 has 0: the first that only rank 0 has is 'running_mean'",
        ),
    ],
)
def test_replicas_that_disagree_are_refused_on_every_rank(on_ranks, build, said):
    on_ranks(f"""
        for call in (Synchronizer.broadcast_parameters, Synchronizer.sync_gradients):
            try:
                call(Synchronizer(TorchCommunicator()), {build})
            except ValueError as error:
                assert {said!r} in str(error), str(error)
            else:
                raise AssertionError("accepted")
    """)


def test_options_and_the_smaller_operations(on_ranks):
    on_ranks("""
        try:
            pair(nn.Linear(2, 2), bucket_cap_mb=0)
        except ValueError as error:
            assert "bucket_cap_mb must be greater than 0, got 0" in str(error)
        else:
            raise AssertionError("accepted")
        comm = TorchCommunicator()
        assert comm.gather(10 * rank, root=1) == (None, [0, 10])[rank]
        comm.barrier()
        tensor = torch.tensor([float(rank)])
        comm.bcast(tensor, root=1)
        assert tensor.item() == 1
    """)


# --- driven by the verifier --------------------------------------------------------------------------------------

FOREIGN = """
import torch, torch.distributed as dist
class Theirs:
    def broadcast_parameters(self, model):
        for tensor in model.state_dict().values():
            dist.broadcast(tensor, src=0)
    def sync_gradients(self, model, use_bucketing=True):
        for parameter in model.parameters():
            dist.all_reduce(parameter.grad)
            {division}
def wrap(model):
    return Theirs()
"""


def verify_foreign(lockstep, tmp_path, division, profile):
    path = tmp_path / "theirs.py"
    path.write_text(FOREIGN.format(division=division))
    report = lockstep.verify(str(path), world_size=3, profile=profile)
    assert {scenario.driver for scenario in report.scenarios if scenario.driver} == {"synchronizer"}
    return report


def test_a_foreign_synchronizer_is_found_and_passes(lockstep, tmp_path):
    verify_foreign(lockstep, tmp_path, "parameter.grad /= dist.get_world_size()", "standard").assert_pass()


def test_one_that_forgets_the_division_fails(lockstep, tmp_path):
    report = verify_foreign(lockstep, tmp_path, "pass", "quick")
    assert {check.code for check in report.checks if check.verdict == "fail"} == {"LS201"}
    assert "missing_average" in {failure.cause for check in report.checks for failure in check.failures}


@pytest.mark.parametrize("options", [{}, {"use_bucketing": False}, {"bucket_cap_mb": 1e-5}])
def test_ours_passes_without_being_named(lockstep, options):
    """In ``quick``; without options it is verified in ``standard`` with all other strategies."""
    report = lockstep.verify("synchronizer", world_size=2, profile="quick", options=options)
    report.assert_pass()
    assert {scenario.driver for scenario in report.scenarios if scenario.driver} == {"synchronizer"}


@settings(max_examples=25)
@given(st.lists(st.integers(1, 60), min_size=1, max_size=12), st.integers(1, 400))
def test_every_gradient_travels_once_whatever_the_cap(sizes, cap_bytes):
    """On one rank the mean is the gradient itself: every element must come back unchanged."""
    from ddp_core.communicator import Communicator
    from ddp_core.synchronizer import Synchronizer

    class Alone(Communicator):
        rank, world_size = 0, 1

        def gather_objects(self, item):
            return [item]

        def barrier(self):
            pass

        def _all_reduce(self, tensor):
            pass

        def _bcast(self, tensor, root):
            pass

    model = torch.nn.ParameterList(torch.nn.Parameter(torch.zeros(size)) for size in sizes)
    for number, parameter in enumerate(model.parameters()):
        parameter.grad = torch.arange(parameter.numel()) + 100.0 * number
    synchronizer = Synchronizer(Alone(), bucket_cap_mb=cap_bytes / 2**20)
    synchronizer.sync_gradients(model)
    assert synchronizer.comm.num_bytes == 4 * sum(sizes)
    assert sorted(name for bucket in synchronizer.buckets(model) for name in bucket) == sorted(
        map(str, range(len(sizes)))
    )
    for number, parameter in enumerate(model.parameters()):
        assert torch.equal(parameter.grad, torch.arange(parameter.numel()) + 100.0 * number)
