"""Scaling and the memory limit: the published figures, and laws that hold for any cluster."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ddp_core import memory_wall, scaling
from ddp_core.cost import Layer, Link, ring_bytes
from ddp_core.memory_wall import FLOAT32_ADAM, state, what_helps
from ddp_core.scaling import Job, Network

HOPS = st.builds(Link, st.floats(0, 1e-4), st.floats(0, 1e-9))
JOB = Job(tuple(Layer(10_000_000, 0.004) for _ in range(20)), forward_s=0.04, optimizer_s=0.01)


def test_seventy_billion_under_adam():
    assert state(70e9).total_bytes / 1e12 == pytest.approx(1.12)  # "1.1 TB of training state per rank"
    assert state(70e9, precision=FLOAT32_ADAM).total_bytes == state(70e9).total_bytes


@pytest.mark.parametrize(
    ("scheme", "gigabytes"), [("ddp", 120), ("zero1", 31.4), ("zero2", 16.6), ("zero3", 1.88), ("fsdp", 1.88)]
)
def test_the_table_of_the_zero_paper(scheme, gigabytes):
    """7.5 billion parameters on 64 ranks (arXiv:1910.02054, figure 1)."""
    assert state(7.5e9, 64, scheme).total_bytes / 1e9 == pytest.approx(gigabytes, rel=0.01)


def test_what_sharding_costs():
    ddp = state(7e9, 64).sent_bytes
    assert ddp == ring_bytes(14e9, 64)
    assert state(7e9, 64, "zero2").sent_bytes == pytest.approx(ddp)
    assert state(7e9, 64, "fsdp").sent_bytes == pytest.approx(1.5 * ddp)
    whole, split = state(7e9, 64, "hsdp", group_size=64), state(7e9, 64, "hsdp", group_size=8)
    assert whole.sent_bytes == pytest.approx(state(7e9, 64, "fsdp").sent_bytes)
    assert split.total_bytes == pytest.approx(8 * whole.total_bytes)


def test_what_helps_is_what_fits_cheapest_first():
    assert [r.state.scheme for r in what_helps(70e9, 64, 80e9, group_size=8)] == ["zero3", "fsdp"]
    assert what_helps(70e9, 8, 80e9) == []
    found = what_helps(7e9, 64, 80e9)
    assert [r.state.scheme for r in found][:2] == ["zero1", "zero2"]
    assert found[0].communication_ratio == pytest.approx(1)
    assert memory_wall.largest_model(80e9, 1, "ddp") == 5e9


def test_refusals():
    with pytest.raises(ValueError, match="group_size=None"):
        state(1e9, 8, "hsdp")
    with pytest.raises(ValueError, match="12 ranks do not fill nodes of 8"):
        scaling.hierarchical(Link(0, 0), Link(0, 0), 12, 8)
    with pytest.raises(ValueError, match="nobody to talk to"):
        scaling.crossings(0.09, 0.03, 1, [2])


def test_the_published_speedups_as_efficiency():
    assert scaling.efficiency_of(4.6, 8) == pytest.approx(0.575)
    assert scaling.efficiency_of(7.1, 8) == pytest.approx(0.8875)


def test_the_compute_bound_condition():
    """Exercise 15.5.3: 90 ms of backward, 30 ms of communication on 2 ranks."""
    found = {c.num_ranks: c for c in scaling.crossings(0.09, 0.03, 2, [2, 8, 64, 4096])}
    assert found[2].communication_s == pytest.approx(0.03)
    assert found[64].communication_s == pytest.approx(0.03 * 63 / 64 * 2)
    assert not any(c.communication_bound for c in found.values())  # volume alone never makes it communication-bound
    slow = scaling.crossings(0.09, 0.03, 2, range(2, 4097), hop_alpha_s=20e-6)
    first = next(c.num_ranks for c in slow if c.communication_bound)
    assert 700 < first < 800  # latency does: 2(N-1) hops of 20 us against the 30 ms beyond volume


def test_accumulation_divides_the_calls():
    link = scaling.ring(Link(1e-5, 1e-9), 8)
    one, four = scaling.accumulate(JOB, link, 1), scaling.accumulate(JOB, link, 4)
    assert one.calls == four.calls  # calls per step, which has four times the samples
    assert four.exposed_s == one.exposed_s
    assert four.micro_batch_s < one.micro_batch_s
    assert four.efficiency > one.efficiency
    assert one.step_s == pytest.approx(JOB.step_s(link))
    assert scaling.effective_batch(8, 16, 4) == 512


def test_to_4096_ranks_two_levels_scale_where_a_flat_ring_does_not():
    network = Network(near=Link(5e-6, 1 / 150e9), far=Link(15e-6, 1 / 25e9), ranks_per_node=8)
    ranks = scaling.powers_of_two(4096)
    assert ranks[0] == 1
    assert ranks[-1] == 4096
    flat = scaling.scale(JOB, lambda n: network.all_reduce(n, "ring"), ranks)
    levels = scaling.scale(JOB, lambda n: network.all_reduce(n, "hierarchical"), ranks)
    assert flat[0].efficiency == 1
    assert flat[-1].efficiency < levels[-1].efficiency
    assert scaling.stops_being_hidden(flat, 0.9).num_ranks < 4096
    assert scaling.stops_being_hidden(levels[:6], 0.9) is None


@given(HOPS, HOPS, st.integers(1, 9), st.integers(1, 9))
def test_two_levels_never_send_more_between_nodes(near, far, nodes, ranks_per_node):
    link = scaling.hierarchical(near, far, nodes * ranks_per_node, ranks_per_node)
    free_inside = scaling.hierarchical(Link(0, 0), far, nodes * ranks_per_node, ranks_per_node)
    assert free_inside.beta_s_per_byte <= scaling.ring(far, nodes * ranks_per_node).beta_s_per_byte + 1e-24
    assert link.beta_s_per_byte >= free_inside.beta_s_per_byte


@given(HOPS, st.integers(1, 5000))
def test_more_ranks_are_never_cheaper(hop, num_ranks):
    for make in (scaling.ring, scaling.tree):
        here, more = make(hop, num_ranks), make(hop, num_ranks + 1)
        assert here.seconds(1e6) <= more.seconds(1e6) * (1 + 1e-12)
    assert scaling.ring(hop, 1) == Link(0, 0)


@given(st.floats(1e6, 1e12), st.integers(1, 512), st.sampled_from(["ddp", "zero1", "zero2", "zero3"]))
def test_sharding_never_needs_more_memory(num_parameters, num_ranks, scheme):
    held = state(num_parameters, num_ranks, scheme).total_bytes
    assert held <= state(num_parameters, num_ranks).total_bytes * (1 + 1e-12)
    assert held * num_ranks >= state(num_parameters).total_bytes * (1 - 1e-12)


@given(st.integers(1, 4096))
def test_powers_of_two_end_at_the_largest(largest):
    ranks = scaling.powers_of_two(largest)
    assert ranks[-1] == largest
    assert ranks == sorted(set(ranks))
