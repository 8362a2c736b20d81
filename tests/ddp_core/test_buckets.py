"""The bucket plan: every gradient once, caps kept, kinds apart, and only sizes decide."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ddp_core.buckets import Gradient, plan_buckets

gradients = st.lists(
    st.builds(lambda n, k: Gradient("g", n, 4 * n, k), st.integers(1, 500), st.sampled_from(["a", "b"])), min_size=1
)


@given(gradients, st.integers(1, 4000), st.integers(1, 4000))
def test_plan(items, cap, first_cap):
    plans = plan_buckets(items, cap_bytes=cap, first_cap_bytes=first_cap)
    placed = [slot.index for plan in plans for slot in plan.slots]
    assert sorted(placed) == list(range(len(items)))
    for plan in plans:
        assert {items[slot.index].kind for slot in plan.slots} == {plan.kind}
        assert [slot.index for slot in plan.slots] == sorted((s.index for s in plan.slots), reverse=True)
        offset = 0
        for slot in plan.slots:
            assert slot.offset == offset
            offset += slot.numel
        assert plan.numel == offset
        holds_first = any(slot.index == len(items) - 1 for slot in plan.slots)
        its_cap = first_cap if holds_first else cap
        assert offset * 4 <= its_cap or (offset - plan.slots[-1].numel) * 4 * 8 < its_cap
    last_places = [min(slot.index for slot in plan.slots) for plan in plans]
    assert last_places == sorted(last_places, reverse=True)  # launched in the order in which they can be complete
    assert plan_buckets(items, cap_bytes=cap, first_cap_bytes=first_cap) == plans


def test_reverse_registration_order_and_a_smaller_first_bucket():
    items = [Gradient(name, 10, 40, "f") for name in "abcdef"]
    plans = plan_buckets(items, cap_bytes=80, first_cap_bytes=40)
    assert [[slot.name for slot in plan.slots] for plan in plans] == [["f"], ["e", "d"], ["c", "b"], ["a"]]


def test_an_observed_order_is_taken_over_and_what_it_lacks_follows():
    items = [Gradient(name, 10, 40, "f") for name in "abcd"]
    plans = plan_buckets(items, cap_bytes=80, first_cap_bytes=80, order=[1, 3])
    assert [[slot.name for slot in plan.slots] for plan in plans] == [["b", "d"], ["c", "a"]]


def test_a_bias_travels_with_the_weight_that_is_too_large_for_the_cap():
    items = [Gradient("weight", 1000, 4000, "f"), Gradient("bias", 10, 40, "f")] * 2
    plans = plan_buckets(items, cap_bytes=1000, first_cap_bytes=500)
    assert [[slot.name for slot in plan.slots] for plan in plans] == [["bias", "weight"]] * 2


@pytest.mark.parametrize(("cap", "first"), [(0, 1), (1, 0), (-1, 1)])
def test_caps_must_be_positive(cap, first):
    with pytest.raises(ValueError, match="must be positive"):
        plan_buckets([], cap_bytes=cap, first_cap_bytes=first)
