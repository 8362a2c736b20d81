"""Ramps restore the exact bits of a tensor, or are not used; they make a recording of tagged gradients small."""

from __future__ import annotations

import json

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from verifier import ramps, reading, tags
from verifier.journal import Journal
from verifier.request import Builtin
from verifier.scenario import Scenario
from verifier.tags import TagBook

ONE = st.tuples(st.floats(width=64), st.floats(width=64), st.integers(1, 9000))
LONG = ramps.LEAST_BYTES // 8


def laid_out(parts):
    with np.errstate(all="ignore"):
        pieces = [np.arange(length) * step + start for start, step, length in parts]
    return np.concatenate([*pieces, np.arange(LONG) * 0.5])


def packed(values):
    return ramps.packed(memoryview(np.ascontiguousarray(values)).cast("B"))


@given(st.lists(ONE, max_size=6))
def test_what_comes_back_is_what_went_in_to_the_bit(parts):
    values = laid_out(parts)
    found = packed(values)
    if found is not None:
        assert ramps.unpacked(found, len(values)).tobytes() == values.tobytes()


@pytest.mark.parametrize(
    "special", [0.0, -0.0, np.nan, np.inf, -np.inf, 5e-324, 1e308, np.nextafter(7.0, 8.0)], ids=str
)
@pytest.mark.parametrize("place", [0, 1, 4095, 2**14, 2**14 + 1, LONG * 3 - 1])
def test_one_element_that_is_not_of_the_ramp_is_kept(special, place):
    values = np.arange(LONG * 3) * 0.25
    values[place] = special
    found = packed(values)
    assert ramps.unpacked(found, len(values)).tobytes() == values.tobytes()


def test_tags_and_their_mean_are_ramps_in_any_order_of_parameters():
    book = TagBook([("a", 40_000), ("b", 13), ("c", 70_000)], 4)
    for flat in (book.gradient("a", 2), book.mean("c")):
        assert len(packed(flat)) < 100
    bucket = np.concatenate([book.gradient(name, 1) for name in ("c", "a", "b")])
    assert len(packed(bucket)) < 200


@pytest.mark.parametrize(
    "values", [np.random.default_rng(0).normal(size=LONG), np.tile([1.0, 2.0, 4.0], LONG), np.full(LONG, np.nan)]
)
def test_other_numbers_are_none(values):
    assert packed(values) is None


def test_ramps_of_another_length_are_none():
    found = packed(np.arange(float(LONG)))
    for numel in (LONG - 1, LONG + 1, 2**40):
        assert ramps.unpacked(found, numel) is None
    assert ramps.unpacked(found[:-1], LONG) is None
    fields = np.frombuffer(found).copy()
    for length in (LONG + 1.0, np.nan, np.inf, -1.0, 0.0, 0.5):
        fields[2] = length
        assert ramps.unpacked(fields.tobytes(), LONG) is None


@pytest.fixture
def folder(tmp_path):
    Scenario(name="t", situation="t", workload="exact", strategy=Builtin(name="naive"), world_size=1).save(tmp_path)
    return tmp_path


def test_a_recording_keeps_ramps_small_and_opens_them(folder):
    rising, other = torch.arange(2e5, dtype=torch.float64).view(400, 500), torch.randn(9000, dtype=torch.float64)
    journal = Journal(folder / "subject" / "rank0")
    journal.tensor("gradient", 0, "rising", rising, keep=True)
    journal.tensor("gradient", 0, "other", other, keep=True)
    assert (folder / "subject" / "rank0" / "blobs.bin").stat().st_size < 100 + 8 * 9000
    rank = reading.read(folder).ranks[0]
    for name, tensor in (("rising", rising), ("other", other)):
        np.testing.assert_array_equal(rank.tensor("gradient", 0, name).values, tensor.numpy())


def test_large_leaves_little(lockstep, tmp_path):
    """Its recording once took some 880 MB, on four ranks."""
    report = lockstep.verify(
        "bucketed", workloads=("branches",), profile="standard", world_size=2, out=tmp_path / "out"
    )
    report.assert_pass()
    folder = tmp_path / "out" / "scenarios" / "large"
    assert json.loads((folder / "scenario.json").read_text())["width"] == 1026
    assert sum(file.stat().st_size for file in folder.rglob("*") if file.is_file()) < 2**21


@pytest.mark.parametrize("numel", [0, 1, 2, tags.BLOCK - 1, tags.BLOCK, tags.BLOCK + 1, 3 * tags.BLOCK + 5])
def test_breaks_are_found_wherever_a_block_ends(numel):
    random = np.random.default_rng(numel)
    for _ in range(20):
        codes = np.arange(numel, dtype=np.float64)
        for begin in [*random.integers(0, max(numel, 1), 5), tags.BLOCK]:
            codes[begin:] += random.integers(0, 3)
        codes[random.integers(0, max(numel, 1)) :][:2] = np.inf
        with np.errstate(invalid="ignore"):
            expected = np.flatnonzero(np.diff(codes) != 1) + 1
        assert np.array_equal(tags._edges(codes, lambda part: part), expected)
