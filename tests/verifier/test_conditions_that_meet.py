"""Mistakes that show only where two conditions meet, each beside the same strategy without it.

Special here: the situations in which the two meet are run, and no others.
"""

from __future__ import annotations

import pytest

HEAD = """
import torch, torch.distributed as dist
from ddp_core import Contract
"""

# Unused, and strided: zeros in the place of a gradient lie in memory as the parameter does, or others are added up.
ZEROS = """
def average_gradients(model):
    for parameter in model.parameters():
        used = torch.tensor(float(parameter.grad is not None))
        dist.all_reduce(used)
        if used and parameter.grad is None:
            parameter.grad = torch.zeros_like(parameter) if RIGHT else torch.zeros(parameter.shape, dtype=torch.float64)
        if used:
            dist.all_reduce(parameter.grad)
            parameter.grad /= dist.get_world_size()
"""

# Infinite, and on every rank: how many ranks have met an infinity is not whether one has.
FLAGS = """
CONTRACT = Contract(sync_buffers=False, disclaims={"unused_parameters", "sparse_gradients"})
class Scaler:
    def __init__(self, optimizer):
        self.optimizer = optimizer
    def __getattr__(self, name):
        return getattr(self.optimizer, name)
    def step(self, closure=None):
        gradients = [p.grad for group in self.optimizer.param_groups for p in group["params"] if p.grad is not None]
        met = torch.tensor(int(not all(gradient.isfinite().all() for gradient in gradients)))
        dist.all_reduce(met)
        for gradient in gradients:
            dist.all_reduce(gradient)
            gradient /= dist.get_world_size()
        if not (met > 0 if RIGHT else met == 1):
            self.optimizer.step()
def wrap(optimizer, model):
    for tensor in model.state_dict().values():
        dist.broadcast(tensor, src=0)
    return Scaler(optimizer)
"""


# Several micro-batches, and what counts twice: as many times too large as there are micro-batches, and not for that.
TWICE = """
def average_gradients(model):
    for number, parameter in enumerate(model.parameters()):
        dist.all_reduce(parameter.grad)
        parameter.grad /= dist.get_world_size() / (1 if RIGHT or number else 2)
"""


@pytest.mark.parametrize("right", [True, False])
@pytest.mark.parametrize(
    ("body", "name", "situation", "code", "cause"),
    [
        pytest.param(
            ZEROS, "average_gradients", "unused_strided", "LS201", "misplaced_elements", id="zeros_of_a_shape"
        ),
        pytest.param(FLAGS, "wrap", "overflow", "LS202", "taken_from_all", id="a_count_of_flags"),
        pytest.param(FLAGS, "wrap", "no_number", "LS202", "taken_from_all", id="a_count_of_flags_for_nan"),
    ],
)
def test_where_they_meet_it_is_told(lockstep, tmp_path, only, body, name, situation, code, cause, right):
    check = _judged(lockstep, tmp_path, only, body, name, situation, code, right)
    assert check.verdict == ("pass" if right else "fail"), check
    assert {failure.cause for failure in check.failures} == (set() if right else {cause})


def test_one_parameter_that_counts_twice_is_no_matter_of_micro_batches(lockstep, tmp_path, only):
    given = TWICE, "average_gradients", "realistic", "LS201"
    assert _judged(lockstep, tmp_path, only, *given, True, world_size=3).verdict == "pass"
    failures = _judged(lockstep, tmp_path, only, *given, False, world_size=3).failures
    assert {failure.cause for failure in failures} == {"missing_accumulation_average"}
    assert all(
        failure.confidence == 0.6 and "other parameters are right" in failure.explanation for failure in failures
    )


def _judged(lockstep, tmp_path, only, body, name, situation, code, right, world_size=2):
    """The check ``code`` of the strategy ``name`` in ``body``, in that situation alone."""
    only(situation)
    path = tmp_path / "mine.py"
    path.write_text(f"{HEAD}RIGHT = {right}\n{body}")
    report = lockstep.verify(f"{path}:{name}", world_size=world_size, checks=[code], profile="thorough")
    return next(check for check in report.checks if check.code == code)
