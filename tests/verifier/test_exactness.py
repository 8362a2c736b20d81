"""The probes' own claims: arithmetic is exact where they say so, and tags can be decoded."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from verifier import workload
from verifier.judge.comparison import reciprocal_is_exact
from verifier.request import Builtin
from verifier.scenario import Scenario
from verifier.tags import Segment, TagBook, factor, first_clash
from verifier.workloads.exact import ExactModel


def scenario(name, **fields):
    return Scenario(name="t", situation="t", workload=name, strategy=Builtin(name="naive"), **fields)


def gradients(load, dtype, rows):
    torch.manual_seed(load.scenario.seed)
    model = load.model(None).to(dtype)
    *inputs, target = (tensor.to(dtype)[rows] for tensor in load.large_batch(0))
    load.loss(model(*inputs), target).backward()
    return {name: p.grad for name, p in model.named_parameters()}


@pytest.mark.parametrize("world_size", range(1, 9))
@pytest.mark.parametrize("num_micro_batches", [1, 4])
def test_exact_workload_is_exact(world_size, num_micro_batches):
    """float32 equals float64, and the mean over ranks equals the large batch, bit for bit, in any order of sums."""
    for seed in range(20):
        load = workload.load(
            scenario(
                "exact",
                world_size=world_size,
                num_micro_batches=num_micro_batches,
                samples_per_micro_batch=4,
                seed=seed,
            )
        )
        whole32, whole64 = gradients(load, torch.float32, slice(None)), gradients(load, torch.float64, slice(None))
        size = num_micro_batches * 4
        local = [gradients(load, torch.float32, slice(r * size, (r + 1) * size)) for r in range(world_size)]
        for name, expected in whole32.items():
            assert torch.equal(expected.double(), whole64[name])
            for order in (local, local[::-1]):
                total = sum((g[name] for g in order), torch.zeros_like(expected))
                assert torch.equal(total / world_size, expected)
                early = sum((g[name] / world_size for g in order), torch.zeros_like(expected))
                assert torch.equal(early, expected)
            assert whole32["inlet.weight"].any(), "a probe of zeros would show nothing"


@pytest.mark.parametrize("world_size", range(1, 33))
def test_reciprocal_is_exact_says_what_numpy_does(world_size):
    multiples = np.arange(1, 2**16, dtype=np.float32)
    product = (multiples * np.float32(world_size)) * (np.float32(1) / np.float32(world_size))
    exact = bool((product == multiples).all())
    assert exact or not reciprocal_is_exact(world_size)  # it never claims exactness wrongly
    if world_size in (7, 13, 14, 15):
        assert not reciprocal_is_exact(world_size)
    if world_size in (1, 2, 3, 4, 5, 6, 8):
        assert reciprocal_is_exact(world_size)


sizes = st.lists(st.integers(1, 40), min_size=1, max_size=6)


@settings(max_examples=60, deadline=None)
@given(sizes, st.integers(1, 64), st.data())
def test_tags_are_exact_and_decode(numels, world_size, data):
    book = TagBook([(f"p{i}", n) for i, n in enumerate(numels)], world_size)
    rank = data.draw(st.integers(0, world_size - 1))
    name = data.draw(st.sampled_from(book.names))
    flat = book.gradient(name, rank)
    assert (flat.astype(np.float32).astype(np.float64) == flat).all()
    whole = [Segment(name, 0, len(flat), 0)]
    assert book.decode(flat.astype(np.float32), rank) == whole
    assert book.decode((flat / world_size).astype(np.float32), rank) == whole  # divided before reducing
    total = sum((book.gradient(name, r).astype(np.float32) for r in range(world_size)), np.zeros(len(flat), np.float32))
    assert ((total / np.float32(world_size)) == book.mean(name)).all()


@settings(max_examples=60, deadline=None)
@given(sizes, st.randoms(use_true_random=False))
def test_a_bucket_in_any_order_is_read_like_a_packing_list(numels, random):
    book = TagBook([(f"p{i}", n) for i, n in enumerate(numels)], 4)
    names = list(book.names)
    random.shuffle(names)
    payload = np.concatenate([book.gradient(n, 1) for n in names] + [np.zeros(3)])
    found = book.decode(payload.astype(np.float32), 1)
    assert "".join(s.describe() for s in found).count("[0:") == len(names)
    assert sum(s.stop - s.start for s in found) == sum(numels)
    assert found[0].name == names[0]


def clash_of_all_pairs(mine, theirs):
    """A readable version of ``first_clash``: it compares every segment with every other."""
    for here in mine:
        for there in theirs:
            begin = max(here.offset, there.offset)
            end = min(here.offset + here.stop - here.start, there.offset + there.stop - there.start)
            aligned = here.name == there.name and here.start - here.offset == there.start - there.offset
            if begin < end and not aligned:
                return here, there
    return None


@settings(max_examples=200, deadline=None)
@given(sizes, st.randoms(use_true_random=False))
def test_two_packing_lists_clash_where_comparing_all_pairs_says_so(numels, random):
    book = TagBook([(f"p{i}", n) for i, n in enumerate(numels)], 2)
    lists = []
    for rank in (0, 1):
        names = list(book.names)
        if random.random() < 0.5:
            at = random.randrange(len(names))
            names[at:] = reversed(names[at:])
        unused = random.choice([None, *names])
        sent = [book.gradient(n, rank) * (n != unused) for n in names]
        lists.append(book.decode(np.concatenate(sent), rank) or [])
    assert first_clash(*lists) == clash_of_all_pairs(*lists)


def test_tags_of_a_large_model_fit_into_float16():
    book = TagBook([("a", 300_000), ("b", 700_000)], 3)
    tags = np.concatenate([book.gradient(name, 2) for name in ("b", "a")])
    assert np.isfinite((3 * tags).astype(np.float16)).all()
    assert book.decode(tags, 2) == [Segment("b", 0, 700_000, 0), Segment("a", 0, 300_000, 700_000)]
    assert book.decode(tags / 3, 2) == book.decode(tags, 2)
    assert book.decode(np.append(tags, [0.0, tags[0]]), 2)[-1] == Segment("b", 0, 1, 1_000_001)
    assert book.decode(np.append(tags, np.inf), 2) is None
    assert book.decode(tags.reshape(1000, 1000).T.copy(), 2) is None  # a million single elements are not decoded


def test_what_is_no_tag_is_not_read_as_one():
    book = TagBook([("a", 64), ("b", 64)], 2)
    assert book.decode(np.zeros(64, np.float32), 0) is None
    assert book.decode(np.full(64, np.nan, np.float32), 0) is None
    assert book.decode(np.linspace(-1, 1, 64, dtype=np.float32), 0) is None
    assert book.decode(np.arange(64, dtype=np.int64), 0) is None
    assert book.decode((book.gradient("a", 0) * 2).astype(np.float32), 0) is None or factor(0) != 1
    assert book.decode((book.gradient("a", 0) * 4).astype(np.float32), 0) is None


def test_llama_in_float64_leaves_a_wide_gap():
    """Summing in another order moves a gradient by less than 1e-12 of its largest element: far below the bound."""
    load = workload.load(scenario("llama", world_size=4, samples_per_micro_batch=2, seed=3))
    whole = gradients_of(load, slice(None))
    parts = [gradients_of(load, slice(r * 2, r * 2 + 2)) for r in range(4)]
    for name, expected in whole.items():
        mean = sum(p[name] for p in parts) / 4
        assert (mean - expected).abs().max() <= 1e-12 * expected.abs().max()


def gradients_of(load, rows):
    torch.manual_seed(load.scenario.seed)
    model = load.model(None)
    *inputs, target = (tensor[rows] for tensor in load.large_batch(0))
    load.loss(model(*inputs), target).backward()
    return {name: p.grad for name, p in model.named_parameters()}


def test_branches_become_ready_in_another_order_on_each_rank():
    orders = []
    for rank in range(4):
        load = workload.load(scenario("branches", world_size=4, samples_per_micro_batch=2))
        model, order = load.model(rank), []
        for name, parameter in model.named_parameters():
            parameter.register_post_accumulate_grad_hook(lambda p, name=name, order=order: order.append(name))
        *inputs, target = load.micro_batch(0, 0, rank)
        load.loss(model(*inputs), target).backward()
        orders.append(tuple(order))
    assert len(set(orders)) == 4
    assert all(sorted(order) == sorted(orders[0]) for order in orders)


def test_roundings_decide_nothing_where_a_relu_meets_zero():
    """A correct strategy that rounds (``factors_that_round``) once failed for this in three of forty seeds."""
    gradients = []
    for moved in (0.0, 1e-13, -1e-13):
        torch.manual_seed(0)
        model = ExactModel().double()
        with torch.no_grad():
            model.inlet.weight[0] = 0.0
            model.inlet.bias[0] = moved
        model(torch.ones(2, 6, dtype=torch.float64)).sum().backward()
        gradients.append(model.inlet.weight.grad)
    assert torch.equal(gradients[0], gradients[1])
    assert torch.equal(gradients[0], gradients[2])
