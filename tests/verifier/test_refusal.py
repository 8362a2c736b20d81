"""Wrong, refused and not claimed are kept apart: a clear refusal of what is not claimed is no failure, and no pass."""

from __future__ import annotations

import pytest

REFUSES = """
from ddp_core import Contract
from ddp_core.strategies import naive, strict
{contract}
def wrap(model):
    {body}
"""


@pytest.fixture
def verify(lockstep, tmp_path):
    def run(contract, body):
        path = tmp_path / "mine.py"
        path.write_text(REFUSES.format(contract=contract, body=body))
        return lockstep.verify(str(path), world_size=2)

    return run


def test_a_refusal_of_what_is_not_claimed_is_not_a_failure(verify):
    report = verify("CONTRACT = Contract(broadcasts_at_start=False)", "return strict.wrap(model)")
    report.assert_pass()
    start = next(scenario for scenario in report.scenarios if scenario.name == "different_start")
    assert start.refused is not None
    assert "replicas do not start equal: rank 1 holds other values of 'inlet.weight'" in start.refused
    (initial,) = [check for check in report.checks if check.code == "LS001"]
    assert initial.claimed  # the other scenarios do test it: what was accepted starts equal
    assert initial.verdict == "pass"


def test_a_refusal_of_what_is_claimed_is_no_pass(verify):
    report = verify("", "return strict.wrap(model)")
    assert report.verdict == "unknown"
    assert any("different_start: rank 0 raised" in problem for problem in report.problems)


def test_one_that_leaves_replicas_unequal_without_claiming_more_is_not_judged_on_it(verify):
    report = verify(
        "CONTRACT = Contract(broadcasts_at_start=False)",
        "from ddp_core.wrapper import DataParallel\n    from ddp_core.strategies.naive import Naive\n"
        "    class Silent(DataParallel):\n        def broadcast_state(self, src=0): pass\n"
        "    return Silent(model, Naive())",
    )
    report.assert_pass()


def test_a_refusal_by_some_ranks_only_is_no_refusal(verify):
    report = verify(
        "CONTRACT = Contract(broadcasts_at_start=False)",
        "import torch.distributed as dist\n    if dist.get_rank() == 1: raise ValueError('only me')\n"
        "    return naive.wrap(model)",
    )
    assert report.verdict == "unknown"


@pytest.mark.parametrize("contract", ["dict(average='sum')", "None or 3"])
def test_a_contract_of_another_type_is_said_to_be_one(verify, contract):
    report = verify(f"CONTRACT = {contract}", "return naive.wrap(model)")
    assert report.verdict == "unknown"
    assert "must be a ddp_core.Contract" in report.problems[0]
