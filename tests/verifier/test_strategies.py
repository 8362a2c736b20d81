"""Every built-in strategy passes every check, at common world sizes.

Special here: all are verified on three ranks, where no mean is exact by accident and there is more than one other rank.
On one, two and four ranks only the most different ones are, and all of them with LOCKSTEP_ALL_ROWS=1. Strategies that
share their code with others are verified ``quick``: they are rows of the kill matrix, in ``standard``.
"""

from __future__ import annotations

import os
from itertools import product

import pytest

from verifier import catalogue

STRATEGIES = catalogue.STRATEGIES.names()
ALL_ROWS = bool(os.environ.get("LOCKSTEP_ALL_ROWS"))
EVERYWHERE = STRATEGIES if ALL_ROWS else ["bucketed", "fsdp2"]
IN_SHORT = [] if ALL_ROWS else ["naive", "flat", "hook", "strict", "synchronizer", "torch_ddp"]


TRIED = [*product(STRATEGIES, (3,)), *product(EVERYWHERE, (1, 2, 4))]
IN_THE_README = ("bucketed", 4)  # the README's test compares its report, line by line
DEAR = () if ALL_ROWS else (("fsdp2", 2), ("fsdp2", 4))  # a minute in ``standard``, which it passes on three ranks


@pytest.mark.parametrize(("name", "world_size"), [tried for tried in TRIED if tried != IN_THE_README])
def test_a_built_in_strategy_passes(lockstep, name, world_size):
    in_short = name in IN_SHORT or (name, world_size) in DEAR
    report = lockstep.verify(name, world_size=world_size, profile="quick" if in_short else "standard")
    report.assert_pass()
    claimed = {check.code for check in report.checks if check.claimed}
    alone = {"LS201", "LS202"}
    assert claimed >= (alone if world_size == 1 else alone | {"LS001", "LS101", "LS301", "LS401"})
    assert all(check.comparisons > 0 for check in report.checks if check.claimed)


@pytest.mark.parametrize("name", ["bucketed", "torch_ddp"])
@pytest.mark.parametrize("world_size", [5, 7])
def test_odd_world_sizes_where_reciprocals_are_inexact(lockstep, name, world_size):
    """torch's DDP multiplies by 1/W, which for W = 7 is off by one rounding; the bound allows just that."""
    lockstep.verify(name, world_size=world_size).assert_pass()


@pytest.mark.parametrize("cap", [25, 0.001, 0.00001])
def test_bucketed_passes_at_any_bucket_size(lockstep, cap):
    lockstep.verify("bucketed", world_size=2, options={"bucket_cap_mb": cap}).assert_pass()


@pytest.mark.usefixtures("in_short")
def test_thorough_repeats_every_situation_with_other_seeds(lockstep):
    report = lockstep.verify("bucketed", world_size=2, profile="thorough", workloads=("exact",))
    report.assert_pass()
    assert {"plain", "plain-2", "plain-3"} <= {scenario.name for scenario in report.scenarios}


def test_digits_are_learnt_and_replicas_stay_equal(lockstep):
    """On real data the loss falls, nine in ten held-out digits are read, weights agree to the byte after 220 steps."""
    report = lockstep.verify("bucketed", world_size=2, workloads=("digits",))
    report.assert_pass()
    (digits,) = report.scenarios
    assert digits.evaluation["held_out_accuracy"] > 0.9
    assert sum(digits.losses[-10:]) / 10 < 0.2 < 2.0 < digits.losses[0]
    lockstep_check = next(check for check in report.checks if check.code == "LS101")
    assert lockstep_check.comparisons == 220 * 8  # every step, every parameter


@pytest.mark.parametrize("style", ["native", "finish", "explicit"])
def test_a_style_can_be_named(lockstep, style, tmp_path):
    mine = tmp_path / "mine.py"
    mine.write_text(
        "import torch.distributed as dist\n"
        "from ddp_core.strategies import naive\n"
        "def wrap(model):\n"
        "    wrapped = naive.wrap(model)\n"
        "    wrapped.finish_gradient_synchronization = lambda: None\n"
        "    wrapped.sync_gradients = lambda: None\n"
        "    return wrapped\n"
    )
    report = lockstep.verify(f"{mine}:wrap", world_size=2, driver=style)
    report.assert_pass()
    assert {scenario.driver for scenario in report.scenarios} == {style}


def wrapped_in_this_file(model):
    from ddp_core.strategies import flat

    return flat.wrap(model)


def test_a_function_of_a_test_module_can_be_verified(lockstep):
    lockstep.verify(wrapped_in_this_file, world_size=2).assert_pass()
