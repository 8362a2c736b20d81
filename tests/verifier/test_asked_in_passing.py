"""Requests that a scenario makes besides its subject: an evaluation, a checkpoint, small buckets."""

from __future__ import annotations

import pytest

from verifier.judge.judging import MAX_FAILURES_SHOWN, _shown
from verifier.run.loading import _cap_argument
from verifier.verdict import Failure

HEAD = """
import torch, torch.distributed as dist
from torch import nn
from ddp_core import Contract
class Replica(nn.Module):
    def __init__(self, module):
        super().__init__()
        self.module = module
        for tensor in module.state_dict().values():
            dist.broadcast(tensor, src=0)
    def forward(self, *inputs):
        for buffer in self.module.buffers() if self.training else ():
            dist.broadcast(buffer, src=0)
        return self.module(*inputs)
    def sync_gradients(self):
        for p in self.module.parameters():
            dist.all_reduce(p.grad)
            p.grad /= dist.get_world_size()
"""

NO_STATE_YET = """
class wrap(Replica):
    def state_dict(self):
        raise RuntimeError("consolidate the state first")
"""

NO_EVALUATION = """
CONTRACT = Contract(disclaims=DISCLAIMED)
class wrap(Replica):
    def forward(self, *inputs):
        if not self.training:
            raise RuntimeError("call finish() first")
        return super().forward(*inputs)
"""

NOT_BETWEEN = """
CONTRACT = Contract(disclaims=DISCLAIMED)
class wrap(Replica):
    def sync_gradients(self):
        for p, held in zip(self.module.parameters(), self.held):
            assert p.grad is held, "gradients were put elsewhere"
        super().sync_gradients()
    def forward(self, *inputs):
        out = super().forward(*inputs)
        for p in self.module.parameters():
            p.grad = torch.zeros_like(p) if p.grad is None else p.grad
        self.held = [p.grad for p in self.module.parameters()]
        return out
"""


def verified(lockstep, tmp_path, only, body, situation):
    only(situation)
    path = tmp_path / "mine.py"
    path.write_text(HEAD + body)
    return lockstep.verify(f"{path}:wrap", world_size=2, profile="standard")


def test_who_shows_no_state_amid_micro_batches_is_judged_by_gradients(lockstep, tmp_path, only):
    report = verified(lockstep, tmp_path, only, NO_STATE_YET, "accumulation")
    assert next(check for check in report.checks if check.code == "LS201").verdict == "pass"


@pytest.mark.parametrize("disclaimed", [set(), {"evaluation"}])
@pytest.mark.parametrize("situation", ["evaluation", "buffers"])
def test_who_evaluates_nothing_can_say_so(lockstep, tmp_path, only, situation, disclaimed):
    body = NO_EVALUATION.replace("DISCLAIMED", repr(disclaimed))
    report = verified(lockstep, tmp_path, only, body, situation)
    verdicts = {check.code: check.verdict for check in report.checks if check.claimed}
    if situation == "evaluation":  # the whole scenario is refused, or left out
        assert verdicts == {}
    else:  # a scenario about buffers that includes an evaluation
        assert verdicts["LS102"] == ("pass" if disclaimed else "unknown")


@pytest.mark.parametrize("disclaimed", [set(), {"late_zero_grad"}])
def test_zero_grad_between_forward_and_backward_may_be_refused(lockstep, tmp_path, only, disclaimed):
    body = NOT_BETWEEN.replace("DISCLAIMED", repr(disclaimed))
    report = verified(lockstep, tmp_path, only, body, "zero_grad_between")
    assert not any(check.claimed for check in report.checks)


def with_a_cap(cap=25, bucket_cap_mb=25.0):
    pass


@pytest.mark.parametrize(
    ("wrap", "name"),
    [
        (with_a_cap, "bucket_cap_mb"),
        (lambda model, cap_mb=25: model, "cap_mb"),
        (lambda model, max_bucket_size_mb=25: model, "max_bucket_size_mb"),
        (lambda model, bucket_mb=None: model, None),
        (lambda model, bucket_cap_mb=True: model, None),
        (lambda model, size_mb=25: model, None),
        (lambda model, bucket_cap_mb: model, None),
    ],
)
def test_the_cap_of_its_buckets(wrap, name):
    assert _cap_argument(wrap) == name


def test_what_is_explained_is_shown_first():
    unexplained = [Failure(scenario="plain", step=n, rank=0, explanation="") for n in range(MAX_FAILURES_SHOWN)]
    explained = Failure(scenario="plain", step=9, rank=0, cause="stale_gradient", explanation="")
    shown = _shown([*unexplained, explained])
    assert shown[0] is explained
    assert [failure.step for failure in shown[1:]] == [*range(MAX_FAILURES_SHOWN - 1)]
