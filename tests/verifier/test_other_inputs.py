"""A strategy that passes the model other samples than the loop's: the cause reported, only if gradients are wrong."""

from __future__ import annotations

from pathlib import Path

import pytest

PASSED_BY = Path(__file__).parent.parent / "specimens" / "hooks_of_the_model_passed_by.py"
STRATEGY = """
import torch, torch.distributed as dist
from torch import nn
from ddp_core import Contract
CONTRACT = Contract(sync_buffers=False, broadcasts_at_start=False, disclaims={"unused_parameters"})
class Wrapped(nn.Module):
    def __init__(self, module):
        super().__init__()
        self.module = module
    def gathered(self, x):
        parts = [torch.empty_like(x) for _ in range(dist.get_world_size())]
        dist.all_gather(parts, x.detach().contiguous())
        parts[dist.get_rank()] = x
        return parts
    def forward(self, x):
        {forward}
    def sync_gradients(self):
        for parameter in self.module.parameters():
            dist.all_reduce(parameter.grad)
            parameter.grad /= dist.get_world_size() * {divisor}
def wrap(model):
    return Wrapped(model)
"""
RANK_0S = "x = x.detach(); dist.broadcast(x, 0); return self.module(x)"  # overwrites the loop's own tensor
NEXT_RANKS = "return self.module(self.gathered(x)[(dist.get_rank() + 1) % 2])"
NOISY = "return self.module(x * 2)"
ROWS_OF_ALL = "return self.module(torch.cat(self.gathered(x))).chunk(2)[dist.get_rank()]"
ROWS_IN_REVERSE = "return self.module(torch.cat(self.gathered(x))).chunk(2)[1 - dist.get_rank()]"
AS_THEY_ARE = "return self.module(x.clone())"


pytestmark = pytest.mark.usefixtures("in_short")


@pytest.fixture
def leading(lockstep, tmp_path):
    def failure(forward: str, divisor: int = 1):
        path = tmp_path / "mine.py"
        path.write_text(STRATEGY.replace("{forward}", forward).replace("{divisor}", str(divisor)))
        report = lockstep.verify(f"{path}:wrap", world_size=2, checks=("LS201",), workloads=("exact",), profile="quick")
        check = next(check for check in report.checks if check.code == "LS201")
        assert check.verdict == ("fail" if check.failures else "pass")
        return check.failures[0] if check.failures else None

    return failure


@pytest.mark.parametrize(
    ("forward", "whose"),
    [
        (RANK_0S, "on rank 1 rank 0's inputs."),
        (NEXT_RANKS, "on rank 0 rank 1's inputs; on rank 1 rank 0's inputs."),
        (NOISY, "on rank 0 inputs with other numbers in them; on rank 1"),
    ],
)
def test_inputs_that_are_not_the_ranks_own_are_told_as_the_cause(leading, forward, whose):
    found = leading(forward)
    assert (found.cause, found.confidence) == ("other_inputs", 0.9)
    assert whose in found.explanation


def test_inputs_are_no_cause_where_nothing_is_wrong_or_something_else_fits(leading):
    assert leading(ROWS_OF_ALL) is None
    assert leading(ROWS_OF_ALL, 2).cause == "averaged_twice"
    assert leading(AS_THEY_ARE, 2).cause == "averaged_twice"


def test_the_rows_of_all_ranks_are_named(leading):
    assert "on rank 0 the inputs of all ranks" in leading(ROWS_IN_REVERSE).explanation


def test_a_model_that_is_not_called_is_told_as_that_where_its_hooks_matter(lockstep, only):
    only("structured_outputs", "named_inputs")
    report = lockstep.verify(f"{PASSED_BY}:wrap", world_size=2, checks=("LS201",), workloads=("structured",))
    found = [failure.cause for check in report.checks for failure in check.failures]
    assert set(found) == {"model_not_called"}
