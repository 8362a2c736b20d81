"""Evaluations between steps: the modules whose mode is switched, and the wrapper's output in evaluation mode."""

from __future__ import annotations

import pytest

HEAD = """
import copy
from ddp_core.strategies import naive

class Trainer:
    def __init__(self, model):
        self.net = naive.wrap(copy.deepcopy(model))

    def __call__(self, *inputs):
        return self.net(*inputs)

    def named_parameters(self):
        return self.net.named_parameters()

    def state_dict(self):
        return self.net.state_dict()

    def load_state_dict(self, state):
        self.net.load_state_dict(state)
"""

# An engine whose methods of these names are loops.
LOOPS = """
class wrap(Trainer):
    def train(self, loader):
        raise AssertionError("nobody has a loader")

    def eval(self, loader):
        raise AssertionError("nobody has a loader")
"""

SWITCHES = """
class wrap(Trainer):
    def train(self, mode=True):
        self.net.train(mode)

    def eval(self):
        self.train(False)
"""

SWITCHES_NOTHING = SWITCHES.replace("self.net.train(mode)", "pass")

DOUBLES = (
    SWITCHES
    + """
    def __call__(self, *inputs):
        return self.net(*inputs) if self.net.training else 2 * self.net(*inputs)
"""
)


@pytest.fixture
def verify(lockstep, tmp_path):
    def run(body, workload):
        path = tmp_path / "mine.py"
        path.write_text(HEAD + body)
        report = lockstep.verify(f"{path}:wrap", world_size=2, profile="standard", workloads=(workload,))
        return report, {check.code for check in report.checks if check.verdict == "fail"}

    return run


@pytest.mark.parametrize("body", ["wrap = Trainer", LOOPS, SWITCHES], ids=["neither", "loops", "switches"])
def test_the_model_is_switched_wherever_it_is(verify, body):
    report, failed = verify(body, "buffers")
    assert report.verdict == "pass", report.summary
    assert not failed


def test_a_mode_that_does_not_arrive_is_seen(verify):
    report, failed = verify(SWITCHES_NOTHING, "buffers")
    assert failed == {"LS102"}, report.summary
    (check,) = [check for check in report.checks if check.code == "LS102"]
    assert {failure.cause for failure in check.failures} == {"buffers_miscounted"}


def test_another_answer_in_an_evaluation_is_seen(verify):
    report, failed = verify(DOUBLES, "exact")
    assert failed == {"LS201", "LS204"}, report.summary  # training in evaluation mode fails, too
