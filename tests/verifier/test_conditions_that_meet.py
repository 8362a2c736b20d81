"""Mistakes that show only where two conditions meet, each compared with the same strategy without the mistake.

Special here: only the situations in which both conditions hold are run.
"""

from __future__ import annotations

from pathlib import Path

import pytest

SPECIMENS = Path(__file__).parents[1] / "specimens"
# Unused and strided: zeros that replace a gradient need the parameter's memory layout, or other elements are added up.
ZEROS = "zeros_of_a_shape", "torch.zeros(parameter.shape, dtype=parameter.dtype)", "torch.zeros_like(parameter)"
# Infinite on every rank: a count of the ranks with an infinity is not 1 then.
FLAGS = "a_count_of_flags", "met != 1", "met == 0"
# NaN on another rank than the one that decides.
ONE_DECIDES = "rank_0_decides", "dist.broadcast(self.is_bad, src=0)", "dist.all_reduce(self.is_bad)"
# A batch dropped under no_sync(): gradients kept beside .grad must be cleared as well.
KEPT = (
    "kept_under_no_sync",
    "    def sync_gradients(",
    "    def zero_grad_buffer(self):\n        self.kept = {}\n\n    def sync_gradients(",
)
# Unequal start and the fifth step: slow weights are copied before or after replicas are made equal.
COPY = "        self.slow = [parameter.detach().clone() for parameter in module.parameters()]\n"
WRAP = "        self.inner = DistributedDataParallel(module, find_unused_parameters=True)\n"
SLOW = "slow_weights_before_the_start", COPY + WRAP, WRAP + COPY

# Two micro-batches and a gradient that counts twice: it is too large by their number, but not because of them.
TWICE = """
import torch.distributed as dist
def average_gradients(model):
    for number, parameter in enumerate(model.parameters()):
        dist.all_reduce(parameter.grad)
        parameter.grad /= dist.get_world_size() / (1 if RIGHT or number else 2)
"""


@pytest.mark.parametrize("right", [True, False])
@pytest.mark.parametrize(
    ("specimen", "name", "situation", "code", "cause"),
    [
        pytest.param(
            ZEROS, "average_gradients", "unused_strided", "LS201", "misplaced_elements", id="zeros_of_a_shape"
        ),
        pytest.param(FLAGS, "wrap", "overflow", "LS202", "taken_from_all", id="a_count_of_flags"),
        pytest.param(FLAGS, "wrap", "no_number", "LS202", "taken_from_all", id="a_count_of_flags_for_nan"),
        pytest.param(ONE_DECIDES, "wrap", "loss_no_number", "LS202", "one_rank_decides", id="rank_0_decides"),
        pytest.param(KEPT, "wrap", "dropped_micro_batch", "LS201", "not_cleared", id="kept_under_no_sync"),
        pytest.param(SLOW, "Slow", "later_start", "LS101", "replicas_diverged", id="slow_weights_before_the_start"),
    ],
)
def test_where_they_meet_it_is_told(lockstep, tmp_path, only, specimen, name, situation, code, cause, right):
    stem, mistake, mended = specimen
    text = (SPECIMENS / f"{stem}.py").read_text()
    assert mistake in text
    body = text.replace(mistake, mended) if right else text
    check = _judged(lockstep, tmp_path, only, body, name, situation, code)
    assert check.verdict == ("pass" if right else "fail"), check
    assert {failure.cause for failure in check.failures} == (set() if right else {cause})


def test_one_parameter_that_counts_twice_is_no_matter_of_micro_batches(lockstep, tmp_path, only):
    given = "average_gradients", "realistic", "LS201"
    assert _judged(lockstep, tmp_path, only, f"RIGHT = True{TWICE}", *given, world_size=3).verdict == "pass"
    failures = _judged(lockstep, tmp_path, only, f"RIGHT = False{TWICE}", *given, world_size=3).failures
    assert {failure.cause for failure in failures} == {"missing_accumulation_average"}
    assert all(
        failure.confidence == 0.6 and "other parameters are right" in failure.explanation for failure in failures
    )


def _judged(lockstep, tmp_path, only, body, name, situation, code, world_size=2):
    """The result of check ``code`` for the strategy ``name`` in ``body``, in only that situation."""
    only(situation)
    path = tmp_path / "mine.py"
    path.write_text(body)
    report = lockstep.verify(f"{path}:{name}", world_size=world_size, checks=[code], profile="thorough")
    return next(check for check in report.checks if check.code == code)
