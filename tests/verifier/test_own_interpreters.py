"""Orders that differ between interpreters but not between forks: found on ranks not forked, if the text shows a set."""

from __future__ import annotations

import pytest

from verifier.naming import parse_strategy
from verifier.orders import may_be_drawn
from verifier.request import Builtin, Source

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


@pytest.fixture
def verify(lockstep, tmp_path, only):
    def run(order):
        only("plain", "own_interpreters")
        path = tmp_path / "mine.py"
        path.write_text(BY_HASH.replace("{ORDER}", order))
        return lockstep.verify(str(path), world_size=2, profile="thorough", workloads=("exact",))

    return run


def test_an_order_that_each_interpreter_draws_itself(verify):
    """The order follows from the seed of the run and the rank, so it is the same in each run of this test."""
    report = verify("set(named)")
    assert report.verdict == "fail"
    assert {f.scenario for check in report.checks for f in check.failures} == {"own_interpreters"}


def test_an_order_that_all_agree_on(verify):
    verify("sorted(set(named))").assert_pass()


def test_ranks_that_die_of_their_orders_while_they_start(lockstep, tmp_path):
    """Where replicas start unequal, too: otherwise a rank that dies or hangs there would only give unknown."""
    path = tmp_path / "mine.py"
    path.write_text(BY_HASH.replace("{ORDER}", "(named if comm.rank else reversed(named))").replace("Flat", "Naive"))
    path.write_text(path.read_text().replace("strategies.flat", "strategies.naive"))
    report = lockstep.verify(str(path), world_size=2, profile="quick")
    found = next(check for check in report.checks if check.code == "LS301")
    assert "different_start" in found.failed_in
    assert all(failure.cause == "collectives_differ" for failure in found.failures)


def test_a_number_that_is_an_elements_code_is_not_that_element_again_and_again(lockstep):
    """With this seed the mean magnitude that ``sign_only`` sends for all elements equals an element's code."""
    report = lockstep.verify(
        "tests/specimens/sign_only.py:wrap", world_size=2, profile="thorough", workloads=("exact",), seed=710
    )
    assert {check.code for check in report.checks if check.verdict == "fail"} == {"LS201"}


DRAWN = [
    "for name in set(names): ...",
    "for name in frozenset(names): ...",
    "for name in {n for n in names}: ...",
    "for name in {first, *others}: ...",
    "for name in ours.keys() - theirs.keys(): ...",
    "names = ours.keys()\nfor name in names - done: ...",
    "self.names = ours.keys()\nfor name in self.names - self.done: ...",
    "for p in sorted(parameters, key=id): ...",
    "for name in sorted(names, key=lambda name: hash(name)): ...",
    "for name in map(set, names): ...",
]
NOT_DRAWN = [
    "for name in sorted(names): ...",
    "seen = {id(p): p for p in parameters}",
    "left = total - len(ours.keys())",
    "names = ours.keys()\nleft = total - done",
    "flags = first | second",
    "x = {}",
    "CONTRACT = Contract(disclaims={'sparse_gradients', 'branch_order'})",
    "this is no Python",
]


@pytest.mark.parametrize("line", DRAWN)
def test_a_text_in_which_an_order_may_be_drawn(line):
    assert may_be_drawn(Source(files={"helper.py": "", "mine.py": line}, entrypoint="mine:wrap"))


@pytest.mark.parametrize("line", NOT_DRAWN)
def test_a_text_in_which_none_is(line):
    assert not may_be_drawn(Source(files={"mine.py": line}, entrypoint="mine:wrap"))


def test_a_strategy_without_a_text_at_hand(tmp_path):
    assert not may_be_drawn(Builtin(name="bucketed"))
    path = tmp_path / "mine.py"
    path.write_text("def wrap(model): return set(model)")
    strategy = parse_strategy(str(path))
    path.unlink()
    assert not may_be_drawn(strategy)
