"""Engines with an update rule of their own that reduce inside ``step()``: what no gradient shows, weights do."""

from __future__ import annotations

import pytest

SIGNS = """
import contextlib, torch, torch.distributed as dist
from ddp_core import Contract

CONTRACT = Contract(optimizer="own", sync_buffers=False)

class wrap(torch.nn.Module):
    def __init__(self, module):
        super().__init__()
        self.module, self.synced = module, True
        for tensor in module.state_dict().values():
            dist.broadcast(tensor, 0)

    def forward(self, *inputs):
        return self.module(*inputs)

    @contextlib.contextmanager
    def no_sync(self):
        self.synced = False
        NO_SYNC

    def backward(self, loss):
        loss.backward()

    @torch.no_grad()
    def step(self):
        for parameter in self.module.parameters():
            if parameter.grad is None:
                continue
            mean = parameter.grad.clone()
            if self.synced:
                dist.all_reduce(mean)
            ELSE
            parameter -= 0.001 * mean.sign()

    def zero_grad(self, set_to_none=True):
        self.module.zero_grad()
"""
RESTORED = """
        try:
            yield
        finally:
            self.synced = True
"""
NOT_RESTORED = """
        yield
        self.synced = True
"""


@pytest.mark.parametrize(
    ("no_sync", "unsynced", "verdict"),
    [(RESTORED, "", "pass"), (NOT_RESTORED, "", "fail"), (NOT_RESTORED, "else: continue", "unknown")],
    ids=["restored", "each its own", "rests"],
)
def test_no_sync_of_an_engine_with_a_rule_of_its_own(lockstep, tmp_path, only, no_sync, unsynced, verdict):
    only("plain", "no_sync_exception")
    (tmp_path / "mine.py").write_text(SIGNS.replace("NO_SYNC", no_sync).replace("ELSE", unsynced))
    report = lockstep.verify(f"{tmp_path / 'mine.py'}:wrap", world_size=2, profile="standard")
    check = next(check for check in report.checks if check.code == "LS502")
    assert (report.verdict, check.verdict) == (verdict, verdict), report.summary
    assert {failure.cause for failure in check.failures} <= {"no_sync_not_restored"}


def test_a_narrow_wire_that_no_gradient_shows_is_named(lockstep, tmp_path, only):
    only("plain")
    narrowed = "mean = (mean + 100).bfloat16()\n            if self.synced:"
    widened = "mean = mean.to(parameter.dtype) / 2 - 100"
    text = SIGNS.replace("NO_SYNC", RESTORED).replace("ELSE", widened).replace("if self.synced:", narrowed)
    (tmp_path / "mine.py").write_text(text)
    report = lockstep.verify(f"{tmp_path / 'mine.py'}:wrap", world_size=2, checks=("LS202",))
    (check,) = (check for check in report.checks if check.code == "LS202")
    failure = check.failures[0]
    assert failure.cause == "update_differs"
    assert "Contract(lossy='bfloat16')" in failure.hint
