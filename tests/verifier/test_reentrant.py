"""A weight used inside and outside a re-entrant checkpoint: torch's DDP averages only a part of its gradient."""

from __future__ import annotations

import pytest

CLAIMS = """
from torch.nn.parallel import DistributedDataParallel
from ddp_core import Contract

CONTRACT = Contract(supports={"reentrant_sharing"})

def wrap(model):
    return DistributedDataParallel(model, bucket_cap_mb=0.01, static_graph=STATIC)
"""


def verify(lockstep, path, *, static):
    path.write_text(CLAIMS.replace("STATIC", str(static)))
    return lockstep.verify(str(path), world_size=2, profile="thorough", workloads=("reentrant",))


def test_a_part_alone_that_is_averaged(lockstep, tmp_path):
    report = verify(lockstep, tmp_path / "mine.py", static=False)
    found = next(check for check in report.checks if check.code == "LS201")
    assert found.verdict == "fail"
    assert {name.partition("-")[0] for name in found.failed_in} == {"reentrant_tied"}


def test_a_static_graph_knows_when_both_parts_are_there(lockstep, tmp_path):
    verify(lockstep, tmp_path / "mine.py", static=True).assert_pass()


@pytest.mark.parametrize("strategy", ["bucketed", "hook", "naive"])
def test_ours_average_the_whole(lockstep, strategy):
    report = lockstep.verify(strategy, world_size=2, profile="thorough", workloads=("reentrant",))
    report.assert_pass()
    assert any(scenario.name == "reentrant_tied" for scenario in report.scenarios)
