"""Strategies that send numbers without collectives: there is no order to judge, so gradients and weights decide.

Such a strategy was once always unknown, whatever it computed. A strategy that sends nothing at all must not pass.
"""

from __future__ import annotations

import pytest

THROUGH_THE_STORE = """
import io
import torch, torch.distributed as dist

class wrap(torch.nn.Module):
    num_sent = 0

    def __init__(self, module):
        super().__init__()
        self.module, self.store = module, dist.distributed_c10d._get_default_store()
        for mine, first in zip(module.state_dict().values(), self.everybodys(module.state_dict())[0].values()):
            mine.copy_(first)

    def everybodys(self, thing):
        wrap.num_sent += 1
        file = io.BytesIO()
        torch.save(thing, file)
        self.store.set(f"{wrap.num_sent} of {dist.get_rank()}", file.getvalue())
        sent = [self.store.get(f"{wrap.num_sent} of {rank}") for rank in RANKS]
        return [torch.load(io.BytesIO(one), weights_only=False) for one in sent]

    def forward(self, *inputs):
        return self.module(*inputs)

    def sync_gradients(self):
        parameters = list(self.module.parameters())
        for parameter, *theirs in zip(parameters, *self.everybodys([p.grad for p in parameters])):
            used = [gradient for gradient in theirs if gradient is not None]
            parameter.grad = sum(used) / len(theirs) if used else None

RANKS = range(dist.get_world_size())
"""


@pytest.fixture
def verify(lockstep, tmp_path):
    def run(source):
        path = tmp_path / "mine.py"
        path.write_text(source)
        report = lockstep.verify(f"{path}:wrap", world_size=2, profile="quick")
        return report, {check.code: check for check in report.checks}

    return run


def test_what_the_store_carries_is_judged_by_what_it_comes_to(verify):
    report, checks = verify(THROUGH_THE_STORE)
    report.assert_pass()
    assert not checks["LS301"].claimed
    assert checks["LS101"].verdict == checks["LS201"].verdict == "pass"


def test_what_nothing_carries_is_wrong(verify):
    report, checks = verify(THROUGH_THE_STORE.replace("range(dist.get_world_size())", "[dist.get_rank()]"))
    assert report.verdict == "fail"
    assert checks["LS001"].verdict == "fail"


def test_gradients_that_nothing_carries_are_wrong(verify):
    """Replicas begin equal, but no gradient is sent to another rank."""
    report, checks = verify(
        THROUGH_THE_STORE.replace("in RANKS]", "in (RANKS if self.num_sent < 2 else [dist.get_rank()])]")
    )
    assert report.verdict == "fail"
    assert checks["LS001"].verdict == "pass"
    assert checks["LS101"].verdict == checks["LS201"].verdict == "fail"
