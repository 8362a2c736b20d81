"""Faults outside the kill matrix: where they can be planted, other seeds, a slow network, and the place reported."""

from __future__ import annotations

import pytest

from verifier import catalogue
from verifier.fault import load

FAULTS = catalogue.FAULTS.names()


def failed(report):
    return {check.code for check in report.checks if check.verdict == "fail"}


@pytest.mark.parametrize("strategy", load("sum_instead_of_mean").applies_to)
def test_a_fault_can_be_planted_wherever_it_says(lockstep, strategy):
    assert failed(lockstep.verify(strategy, fault="sum_instead_of_mean", world_size=2)) == {"LS201"}


@pytest.mark.parametrize("world_size", [2, 4])
@pytest.mark.parametrize("name", ["bucketed_by_arrival", "read_before_wait", "skipped_bucket", "sum_instead_of_mean"])
def test_verdicts_do_not_flip_with_seed_and_delay(lockstep, name, world_size):
    fault = load(name)
    for seed in range(1, 4):
        report = lockstep.verify("bucketed", fault=name, world_size=world_size, seed=seed, delay_ms=2.0 * (seed % 2))
        assert failed(report) == fault.trips


def test_the_place_is_named(lockstep):
    report = lockstep.verify("bucketed", fault="bucketed_by_arrival", world_size=2)
    order = next(check for check in report.checks if check.code == "LS301")
    first = order.failures[0]
    assert (first.scenario, first.step, first.rank, first.bucket) == ("branch_order", 0, 1, 0)
    assert first.parameter.startswith("branches.")
    assert "of rank 1 to branches." in first.explanation
    gradient = next(check for check in report.checks if check.code == "LS201")
    assert "rank 0's branches." in gradient.failures[0].explanation


def test_every_fault_says_what_it_is():
    for name in FAULTS:
        assert len(catalogue.FAULTS.docstring(name).splitlines()) >= 3
        assert load(name).trips <= set(catalogue.check_names())
