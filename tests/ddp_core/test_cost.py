"""The cost model reproduces the published figures exactly, and obeys its own laws."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ddp_core import cost
from ddp_core.cost import Contention, Layer, Link

MILLION = 4_000_000  # bytes of a million float32 gradients


def published() -> tuple[list[Layer], Link]:
    """The bucketing document's transformer-like stack: 1.2 ms of backward, 0.95 ms on the wire per million."""
    sizes = [30.0, 20.0] + [0.9, 0.6, 0.4, 0.3] * 12
    return [Layer(round(m * MILLION), m * 1.2e-3) for m in sizes], Link(1.4e-3, 0.95e-3 / MILLION)


@pytest.mark.parametrize(
    ("bucket", "step_ms", "speedup"),
    [
        (0.3, 142.9, 1.64),
        (0.6, 126.6, 1.85),
        (1.5, 121.6, 1.93),
        (4, 121.6, 1.93),
        (10, 121.6, 1.93),
        (25, 141.4, 1.66),
        (50, 165.7, 1.41),
        (76.4, 165.7, 1.41),
    ],
)
def test_the_published_sweep(bucket, step_ms, speedup):
    layers, link = published()
    found = cost.timeline(layers, bucket * MILLION, link)
    assert round(found.step_s * 1e3, 1) == step_ms
    assert round(cost.no_overlap_s(layers, link) / found.step_s, 2) == speedup


def test_the_published_baselines():
    layers, link = published()
    assert round(cost.no_overlap_s(layers, link) * 1e3, 1) == 234.3
    found = cost.timeline(layers, 4 * MILLION, link)
    assert round(found.backward_alone_s * 1e3, 1) == 91.7
    assert round(found.efficiency, 2) == 0.75  # "roughly three quarters"


def test_the_last_bucket_is_the_exposed_one():
    layers, link = published()
    found = cost.timeline(layers, 4 * MILLION, link)
    assert [t.ready_s >= found.backward_end_s - 1e-12 for t in found.transfers] == [False] * 7 + [True]
    assert found.exposed_s == pytest.approx(link.seconds(found.transfers[-1].num_bytes))
    # With a smaller first layer less communication is exposed.
    smaller = [Layer(layers[0].num_bytes // 10, layers[0].backward_s), *layers[1:]]
    assert cost.timeline(smaller, 4 * MILLION, link).exposed_s < found.exposed_s / 5


def test_volume_of_seven_billion_in_bfloat16():
    assert cost.ring_bytes(7e9 * 2, 1000) / 1e9 == pytest.approx(28, rel=0.01)
    assert cost.ring_bytes(7e9 * 2, 10**9) / 150e9 == pytest.approx(0.19, rel=0.02)  # "about 190 ms"


def test_the_published_cnn():
    """235 steps of 206,922 float32 parameters in 8 tensors: one bucket, or eight calls."""
    sizes = [288 + 32, 9216, 64]  # only the sum counts here
    layers = [Layer(206_922 * 4 - sum(sizes), 0.0), *(Layer(n, 0.0) for n in sizes)]
    (only,) = cost.timeline(layers, cost.DEFAULT_CAP_BYTES, Link(0, 0)).transfers
    assert (235 * only.num_bytes, only.num_bytes) == (194_506_680, 827_688)
    assert round(194_506_680 / (235 * 8)) == 103_461


def test_a_slow_network_wants_larger_buckets_and_a_fast_one_a_shorter_step():
    layers, link = published()
    sizes = cost.sizes_between(0.3 * MILLION, 76.4 * MILLION, 60)
    as_it_is = cost.sweep(layers, link, sizes)
    slow = cost.sweep(layers, Link(6e-3, link.beta_s_per_byte), sizes)
    fast = cost.sweep(layers, Link(link.alpha_s, link.beta_s_per_byte / 2), sizes)

    def smallest_good(found):
        return min(p.cap_bytes for p in found.points if p.timeline.step_s <= found.best.timeline.step_s * 1.001)

    assert smallest_good(slow) > smallest_good(as_it_is)
    assert fast.best.timeline.step_s < as_it_is.best.timeline.step_s < slow.best.timeline.step_s


def test_the_optimum_is_told_beside_the_default():
    layers, link = published()
    found = cost.sweep(layers, link, [b * MILLION for b in (0.3, 1.5, 10, 50)])
    assert found.default.cap_bytes == 25 * 2**20
    assert found.best.cap_bytes == 10 * MILLION  # the largest of equals
    assert found.gain == pytest.approx(1 - found.best.timeline.step_s / found.default.timeline.step_s)


def test_with_contention_work_is_conserved():
    """If backward and communication share one core, each twice as slow, they take the sum of their times."""
    layers = [Layer(100, 1.0), Layer(100, 1.0)]
    found = cost.timeline(layers, 1, Link(0.5, 0.0), contention=Contention(2.0, 2.0))
    assert found.backward_end_s == pytest.approx(2.5)
    assert found.step_s == pytest.approx(3.0)
    assert found.transfers[0].start_s == 1.0
    assert found.transfers[0].end_s == pytest.approx(2.0)


LAYERS = st.lists(
    st.builds(Layer, st.integers(1, 10**8), st.floats(0, 1, allow_subnormal=False)), min_size=1, max_size=30
)
LINKS = st.builds(Link, st.floats(0, 0.1), st.floats(0, 1e-8))
CONTENTIONS = st.builds(Contention, st.floats(1, 4), st.floats(1, 4))
CAPS = st.integers(1, 10**9)
FILLS = st.sampled_from(["until_full", "up_to_cap"])


@given(LAYERS, CAPS, LINKS, CONTENTIONS, FILLS)
def test_laws_of_a_timeline(layers, cap, link, contention, fill):
    found = cost.timeline(layers, cap, link, contention=contention, fill=fill)
    alone = sum(layer.backward_s for layer in layers)
    work = sum(link.seconds(t.num_bytes) for t in found.transfers)
    near = 1e-9 + alone * 1e-9
    assert sum(t.num_bytes for t in found.transfers) == sum(layer.num_bytes for layer in layers)
    assert sum(t.num_gradients for t in found.transfers) == len(layers)
    assert found.exposed_s >= 0
    assert found.backward_alone_s == pytest.approx(alone)
    assert found.step_s >= max(alone, work) - near
    assert found.step_s <= alone * contention.backward + work * contention.communication + near
    assert 0 <= found.overlapped_s <= found.communication_s + near
    for before, after in zip(found.transfers, found.transfers[1:], strict=False):
        assert after.start_s >= before.end_s - near
        assert after.ready_s >= before.ready_s
    for transfer in found.transfers:
        assert transfer.ready_s <= transfer.start_s + near
        assert transfer.end_s - transfer.start_s >= link.seconds(transfer.num_bytes) - near


@given(LAYERS, CAPS, LINKS)
def test_without_contention_backward_is_not_disturbed(layers, cap, link):
    found = cost.timeline(layers, cap, link)
    assert found.backward_end_s == pytest.approx(found.backward_alone_s, abs=1e-9)
    last = found.transfers[-1]
    assert found.exposed_s >= link.seconds(last.num_bytes) - 1e-9  # the last bucket cannot be hidden


@given(LAYERS, CAPS, st.floats(0, 0.1), st.floats(0, 1e-8), CONTENTIONS)
def test_a_slower_network_never_helps(layers, cap, alpha, beta, contention):
    def steps(link):
        return cost.timeline(layers, cap, link, contention=contention).step_s

    assert steps(Link(alpha + 0.01, beta * 2)) >= steps(Link(alpha, beta)) - 1e-9


@given(st.integers(1, 10**6), st.floats(0, 1e12))
def test_volume_grows_with_ranks_and_stays_under_two(num_ranks, num_bytes):
    here, more = cost.ring_bytes(num_bytes, num_ranks), cost.ring_bytes(num_bytes, num_ranks + 1)
    assert here <= more <= 2 * num_bytes or math.isclose(here, more)


def test_refusals_name_the_value_the_rule_and_the_remedy():
    with pytest.raises(ValueError, match=r"cap_bytes must be greater than 0, got -1"):
        cost.fill_buckets([Layer(1, 0.0)], -1)
    with pytest.raises(ValueError, match="alpha_s must be a finite number of at least 0, got nan"):
        Link(float("nan"), 0)
    with pytest.raises(ValueError, match="num_ranks must be at least 1, got 0"):
        cost.ring_bytes(1, 0)
    with pytest.raises(ValueError, match="at least 1"):
        Contention(0.5, 1)
    with pytest.raises(ValueError, match="no bucket size to try"):
        cost.sweep([Layer(1, 0.0)], Link(0, 0), [])
