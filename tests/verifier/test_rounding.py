"""Factors that are no powers of two round, which is no mistake; a small error in a few elements is one."""

from __future__ import annotations

import numpy as np
import pytest

from verifier.judge.rounding import ULPS, is_rounding, only_rounded, rounded_in
from verifier.recording import RankRecording, Recording, Tensor
from verifier.scenario import Scenario

EPS = np.finfo(np.float32).eps
BY_RECIPROCAL = """
import torch
import torch.distributed as dist
from ddp_core import DataParallel
from ddp_core.strategies.naive import Naive

class Multiplies(Naive):
    def backward_done(self):
        super().backward_done()
        for parameter in self.parameters:
            if parameter.grad is not None:
                parameter.grad = parameter.grad * dist.get_world_size() * (1 / dist.get_world_size())

def wrap(model):
    return DataParallel(model, Multiplies())
"""


def whole_numbers(size=1000):
    return np.random.default_rng(0).integers(1, 1000, size).astype(np.float32)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_a_factor_and_its_reciprocal_are_roundings(dtype):
    right = whole_numbers().astype(dtype)
    observed = right * dtype(1 / 7) * dtype(7)
    assert not np.array_equal(observed, right)
    assert only_rounded(observed, right)


def test_of_float16_nothing_is_taken_for_a_rounding():
    right = whole_numbers().astype(np.float16)
    assert not only_rounded(right * np.float16(1.001), right)


def test_sums_that_cancel_are_held_to_their_terms_or_in_many_places_to_the_largest():
    right = whole_numbers()
    off = np.where(np.arange(right.size) % 2, right.max() * EPS, 0).astype(np.float32)
    right[1::2] = 1.0
    assert only_rounded(right + off, right)
    few = np.where(np.arange(right.size) == 1, 8 * right.max() * EPS, 0).astype(np.float32)
    assert not only_rounded(right + few, right), "one element, by more than it is rounded by itself"
    assert only_rounded(right + few, right, magnitude=right.max())


def test_what_is_further_off_is_none():
    right = whole_numbers()
    assert not only_rounded(right * np.float32(1 + 4 * ULPS * EPS), right)
    assert not only_rounded(np.where(right == right.max(), np.nan, right), right)
    assert not only_rounded(right[:-1], right)


def recorded(expected, observed, *, step=0, local=None, arithmetic="exact", **fields):
    """A recording of one rank's gradient of one parameter, in exact arithmetic."""

    def tensor(what, values, number):
        return Tensor(what, number, "w", str(values.dtype), values.shape, str(values.tobytes()), values)

    reference, rank = RankRecording(0), RankRecording(0)
    reference.notes["arithmetic"] = arithmetic
    known = [tensor("gradient", expected, step), *([] if local is None else [tensor("local_gradient_0", local, 0)])]
    reference.tensors = {(t.what, t.step, t.name): t for t in known}
    rank.tensors = {("gradient", step, "w"): tensor("gradient", observed, step)}
    scenario = Scenario.model_construct(world_size=1, num_steps=step + 1, keep_steps=8, **fields)
    return Recording(scenario, [rank], reference, {})


def test_a_neighbours_tag_is_no_rounding():
    """In float32, above two million, the next tag is no further away than a rounding."""
    tags = np.arange(2**22, 2**22 + 100, dtype=np.float32)
    for observed, tagged, right in ((tags + 1, True, False), (tags + 1, False, True), (tags, True, True)):
        made = recorded(tags, observed, tagged=tagged)
        assert is_rounding(made, 0, "w", observed, tags) is right


def test_only_exact_arithmetic_is_asked():
    right = whole_numbers()
    off = right * np.float32(1 + EPS)
    assert is_rounding(recorded(right, off, tagged=False), 0, "w", off, right)
    assert not is_rounding(recorded(right, off, tagged=False, arithmetic=None), 0, "w", off, right)


def test_the_step_in_which_it_is_seen():
    right = whole_numbers()
    assert rounded_in(recorded(right, right, tagged=False)) is None
    assert rounded_in(recorded(right, right * np.float32(1 + EPS), tagged=False, step=2)) == 2
    assert rounded_in(recorded(right, right * 2, tagged=False)) is None, "a mistake"


def test_terms_that_cancel_to_nothing_are_held_to_what_they_were():
    nothing = np.zeros(8)
    off = np.full(8, 1e-15)
    assert is_rounding(recorded(nothing, off, tagged=False, local=np.full(8, 4.0)), 0, "w", off, nothing)
    assert not is_rounding(recorded(nothing, off, tagged=False, local=nothing), 0, "w", off, nothing)


def test_on_seven_ranks_the_reciprocal_rounds_and_no_step_is_told_wrong(lockstep, tmp_path):
    """In float32 seven times 1/7 is not 1. Tags are the same in every step."""
    path = tmp_path / "mine.py"
    path.write_text(BY_RECIPROCAL)
    lockstep.verify(str(path), world_size=7, workloads=("branches",)).assert_pass()
