"""Guards against outliers: what one rank sees of its own batch is no reason for it alone. Each beside a right twin."""

from __future__ import annotations

import pytest

GUARD = """
import torch, torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

class Guarded:  # skips a step whose gradients are more than RATIO times as long as they used to be
    def __init__(self, model, optimizer):
        self.optimizer, self.square, self.mean = optimizer, 0.0, None
        for p in model.parameters():
            if SEES_ITS_OWN:
                p.register_hook(self.look)
    def look(self, gradient):
        self.square += float(gradient.square().sum())
    def __getattr__(self, name):
        return getattr(self.optimizer, name)
    def step(self):
        if not SEES_ITS_OWN:
            for group in self.optimizer.param_groups:
                for p in group["params"]:
                    self.look(p.grad)
        norm, self.square = self.square ** 0.5, 0.0
        if self.mean is not None and norm > RATIO * self.mean:
            return
        self.mean = norm if self.mean is None else 0.9 * self.mean + 0.1 * norm
        self.optimizer.step()

def wrap(model, optimizer):
    guarded = Guarded(model, optimizer)
    return DistributedDataParallel(model), guarded
"""


@pytest.mark.parametrize("ratio", [2, 4, 10, 20])
@pytest.mark.parametrize("own", [True, False])
def test_a_guard_that_sees_one_rank_alone(lockstep, tmp_path, only, own, ratio):
    only("surges")
    path = tmp_path / "mine.py"
    path.write_text(f"SEES_ITS_OWN, RATIO = {own}, {ratio}\n{GUARD}")
    report = lockstep.verify(f"{path}:wrap", world_size=2, profile="standard")  # its text says that it skips
    failed = {check.code for check in report.checks if check.verdict == "fail"}
    assert failed == ({"LS101"} if own else set()), report.summary
    assert [scenario.name for scenario in report.scenarios] == ["surges"]
