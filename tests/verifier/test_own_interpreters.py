"""What differs between interpreters and not between forks: seen by ``thorough``, in ranks that are no forks."""

from __future__ import annotations

BY_HASH = """
import torch
import torch.distributed as dist
from ddp_core import DataParallel
from ddp_core.strategies.flat import Flat

class ByName(Flat):
    def prepare(self, named_parameters, comm):
        named = dict(named_parameters)
        super().prepare([(name, named[name]) for name in {ORDER}], comm)

def wrap(model):
    return DataParallel(model, ByName())
"""


def verify(lockstep, tmp_path, order):
    path = tmp_path / "mine.py"
    path.write_text(BY_HASH.replace("{ORDER}", order))
    return lockstep.verify(str(path), world_size=2, profile="thorough", workloads=("exact",))


def test_an_order_that_each_interpreter_draws_itself(lockstep, tmp_path):
    """The draw follows the seed of the run and the rank: it is the same in each run of this test."""
    report = verify(lockstep, tmp_path, "set(named)")
    assert report.verdict == "fail"
    assert {f.scenario for check in report.checks for f in check.failures} == {"own_interpreters"}


def test_an_order_that_all_agree_on(lockstep, tmp_path):
    verify(lockstep, tmp_path, "sorted(set(named))").assert_pass()
