"""Which rank skipped which step when a loss was NaN: handmade recordings of the cases that a judge must distinguish."""

from __future__ import annotations

import numpy as np
import pytest

from verifier.judge.steps_taken import compare_steps_taken
from verifier.recording import RankRecording, Recording, Tensor
from verifier.request import Builtin
from verifier.scenario import Scenario


def recorded(*taken, world_size=3, without=()):
    """A recording of ranks that took the steps marked "x", all or each its own; no weights in steps ``without``."""
    scenario = Scenario(
        name="loss_no_number",
        situation="loss_no_number",
        workload="exact",
        strategy=Builtin(name="bucketed"),
        world_size=world_size,
        num_steps=6,
        infinite_loss=True,
        rank_0_first=True,
        spike="nan",
    )
    ranks = []
    for number in range(world_size):
        rank, weight = RankRecording(number), 0.0
        rank.notes["parameters"] = [{"name": "weight", "shape": [1], "numel": 1, "dtype": "float64"}]
        rank.outcome = {"status": "completed"}
        for step, was in enumerate(" " + taken[number % len(taken)], -1):
            weight += was == "x"
            values = np.array([weight])
            if step not in without:
                rank.tensors["weight", step, "weight"] = Tensor(
                    "weight", step, "weight", "float64", (1,), str(weight), values
                )
        ranks.append(rank)
    return Recording(scenario, ranks, None, {})


@pytest.mark.parametrize("taken", ["x-xxx-", "xxx-xx"])
def test_one_rank_decides(taken):
    found = compare_steps_taken(recorded(taken))
    assert [failure.rank for failure in found.failures] == [0, 1, 2]
    assert {failure.cause for failure in found.failures} == {"one_rank_decides"}


@pytest.mark.parametrize(
    "taken",
    [
        pytest.param("xxxxxx", id="nobody looks"),
        pytest.param("x-x-x-", id="all agree"),
        pytest.param("xxx-x-", id="a guard that begins late"),
        pytest.param("x-xxxx", id="a guard that gives up"),
        pytest.param("x-x-xx", id="a guard that gives up later"),
    ],
)
def test_what_is_right(taken):
    found = compare_steps_taken(recorded(taken))
    assert not found.failures
    assert found.comparisons == 3


def test_what_says_nothing():
    assert compare_steps_taken(recorded("x-xxx-", world_size=1)).not_claimed
    assert compare_steps_taken(recorded("--xxx-")).not_claimed, "applied late, or not at all"
    assert "see LS101" in compare_steps_taken(recorded("x-x-x-", "xxx-x-")).blocked
    for step in (-1, 2, 5):
        assert "not recorded" in compare_steps_taken(recorded("x-xxx-", without=(step,))).blocked
