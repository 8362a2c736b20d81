"""The allowed error of weights, the explanation of larger errors, and when a learning rate may change."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.conftest import ROOT
from verifier import reading
from verifier.judge.comparison import compare
from verifier.judge.narrowing import came_in, held_in
from verifier.judge.updates import compare_with_reference
from verifier.judge.weight_bounds import weight_bound
from verifier.recording import RankRecording, Recording, Tensor
from verifier.request import Builtin
from verifier.scenario import ADAMW_LR, Scenario


def adamw(gradients, weights):
    """Weights after each step of torch's AdamW on these gradients."""
    weight = torch.nn.Parameter(torch.from_numpy(weights.copy()))
    optimizer = torch.optim.AdamW([weight], lr=ADAMW_LR)
    after = []
    for gradient in gradients:
        weight.grad = torch.from_numpy(gradient.copy())
        optimizer.step()
        after.append(weight.detach().numpy().copy())
    return after


def recording(gradients, weights):
    scenario = Scenario(
        name="s",
        situation="s",
        workload="llama",
        strategy=Builtin(name="naive"),
        world_size=2,
        optimizer="adamw",
        num_steps=len(gradients),
    )
    reference, rank = RankRecording(0), RankRecording(0)

    def hold(of, what, step, values):
        of.tensors[what, step, "w"] = Tensor(what, step, "w", "float64", values.shape, "", values)

    for step, gradient in enumerate(gradients):
        hold(reference, "gradient", step, gradient)
    hold(rank, "weight", -1, weights)
    return Recording(scenario, [rank], reference, {})


def bound(made, step, weights):
    return weight_bound(made, step, "w", Tensor("weight", step, "w", "float64", weights.shape, "", weights))


@settings(max_examples=100, deadline=None)
@given(st.integers(0, 2**32 - 1), st.integers(1, 4), st.floats(-14, 4), st.floats(-12, 0))
def test_adamw_on_gradients_within_their_bound_stays_within_that_of_weights(seed, num_steps, scale, least):
    """At any magnitude: elements of one tensor may be 12 orders of magnitude apart."""
    random = np.random.default_rng(seed)
    sizes = 10 ** (scale + random.uniform(least, 0, 64))
    gradients = [random.standard_normal(64) * sizes for _ in range(num_steps)]
    off = [g + 1e-10 * np.abs(g).max() * random.choice([-1, 1], 64) for g in gradients]
    weights = random.standard_normal(64)
    made = recording(gradients, weights)
    for step, (right, near) in enumerate(zip(adamw(gradients, weights), adamw(off, weights), strict=True)):
        assert compare(near, right, bound(made, step, right)).equal


def test_adamw_has_no_room_for_a_float32_in_between():
    random = np.random.default_rng(0)
    gradients, weights = [random.standard_normal(64) * 1e-2], random.standard_normal(64)
    made, right = recording(gradients, weights), adamw(gradients, weights)[0]
    assert not compare(right.astype(np.float32).astype(np.float64), right, bound(made, 0, right)).equal
    assert not compare(right + 1e-3 * (right - weights), right, bound(made, 0, right)).equal


def test_where_weights_are_nan_nobody_says_that_all_others_did_as_they_should():
    random = np.random.default_rng(0)
    gradients, weights = [random.standard_normal(64)], random.standard_normal(64)
    made = recording(gradients, weights)
    right = adamw(gradients, weights)[0]
    rested = right.copy()
    rested[-2:] = weights[-2:]
    assert cause_of(made, right, rested) == "not_stepped"
    rested[0] = np.nan
    with np.errstate(all="raise"):
        assert cause_of(made, right, rested) == "update_differs"


def cause_of(made, right, observed):
    for of, values in ((made.reference, right), (made.ranks[0], observed)):
        of.tensors["weight", 0, "w"] = Tensor("weight", 0, "w", "float64", values.shape, values.tobytes().hex(), values)
    made.ranks[0].notes["parameters"] = [{"name": "w"}]
    (failure,) = compare_with_reference(made, range(1)).failures
    return failure.cause


@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16"])
def test_weights_that_were_kept_narrower(dtype):
    """Within float16's range bfloat16 numbers are float16 numbers, too: the narrowest dtype is reported."""
    random = np.random.default_rng(0)
    wanted = random.standard_normal((8, 4))
    kept = torch.from_numpy(wanted).to(getattr(torch, dtype)).double().numpy()
    assert held_in(kept, wanted, 0) == dtype
    assert held_in(kept, kept, 0) is None  # numbers exact in the narrow dtype by themselves show nothing
    assert held_in(kept * 1.01, wanted, 0) is None
    assert held_in(kept, wanted + 0.1, 0) is None
    assert held_in(kept, wanted + 0.1, 0, noise=0.1) == dtype, "narrower layers around it may have moved it so far"
    assert held_in(wanted, wanted + 1e-9, 0) is None
    assert held_in(kept.astype(np.float32), wanted, 0) is None


def test_gradients_that_came_in_a_narrower_dtype():
    """At any allowed error: with layers of float32 it is larger than the gradients' own roundings."""
    wanted = np.random.default_rng(0).standard_normal((8, 4))
    narrow = wanted.astype(np.float32).astype(np.float64)
    assert came_in(narrow, wanted, 3) == came_in(narrow / 3, wanted / 3, 3) == "float32"
    assert came_in(narrow + 1e-4, wanted, 3) is None
    off = (wanted + 1e-4).astype(np.float32).astype(np.float64)
    assert came_in(off, wanted, 3, bound=np.full((8, 4), 1e-3)) == "float32"
    assert came_in(narrow, narrow, 3) is None, "numbers that are narrow by themselves"
    assert came_in(wanted + 1e-9, wanted, 3, bound=1e-3) is None
    assert came_in(0 * wanted, 0 * wanted, 3) is None


def test_another_order_of_rows_is_measured_of_micro_batches_too(lockstep, tmp_path):
    """With layers of float32 it is the whole bound of a float64 gradient, and only some processors show the effect."""
    lockstep.verify("naive", world_size=2, workloads=("layers",), checks=("LS201",), out=tmp_path)
    recording = reading.read(tmp_path / "scenarios" / "mixed_accumulated")
    assert set(recording.reference.named("gradient", 0)) == set(recording.reference.named("turned_1", 0)) != set()


FLAT = """
from ddp_core import Contract
from tests.specimens.flat_in_the_first_dtype import wrap

CONTRACT = Contract(disclaims={DISCLAIMED})
"""


@pytest.mark.parametrize(("besides", "verdict"), [("", "fail"), (', "float64"', "pass")])
def test_weights_of_float64_beside_narrower_ones_are_not_to_be_rounded(lockstep, tmp_path, besides, verdict):
    path = tmp_path / "flat.py"
    path.write_text(FLAT.replace("DISCLAIMED", '"complex_parameters"' + besides))
    report = lockstep.verify(f"{path}:wrap", world_size=2, workloads=("layers",), checks=("LS202",))
    assert report.verdict == verdict
    assert {failure.cause for check in report.checks for failure in check.failures} <= {"held_narrower"}


def test_gradients_of_float64_beside_narrower_ones_are_held_to_float64(lockstep):
    path = ROOT / "tests" / "specimens" / "bucket_of_the_first_dtype.py"
    report = lockstep.verify(f"{path}:wrap", world_size=2, workloads=("layers",), checks=("LS201",))
    assert report.verdict == "fail"
    assert {failure.cause for check in report.checks for failure in check.failures} == {"rounded_on_the_wire"}


def test_a_scenario_of_before_there_could_be_several_changes_is_read():
    one = {"name": "s", "situation": "s", "workload": "exact", "strategy": Builtin(name="naive"), "world_size": 1}
    assert Scenario(**one, new_lr_after=0).new_lr_after == (0,)
    assert Scenario(**one, new_lr_after=None).new_lr_after == ()
    several = Scenario(**one, new_lr_after=(0, 2))
    assert Scenario.model_validate_json(several.model_dump_json()) == several
