"""A compiled strategy is judged like any other: the compiler must not trace the verifier's code inside it."""

from __future__ import annotations

import pytest

HEAD = """
import torch
from torch.nn.parallel import DistributedDataParallel as DDP
"""
AROUND = HEAD + "\ndef wrap(model):\n    return torch.compile(DDP(model))\n"
INSIDE = HEAD + "\ndef wrap(model):\n    return DDP(torch.compile(model, backend='aot_eager'))\n"


@pytest.fixture
def verify(lockstep, tmp_path, only):
    def run(body):
        only("buffers")  # each scenario compiles once more on each rank
        path = tmp_path / "mine.py"
        path.write_text(body)
        report = lockstep.verify(f"{path}:wrap", world_size=2, profile="standard", timeout_s=300)
        return report, {check.code for check in report.checks if check.verdict == "fail"}

    return run


@pytest.mark.parametrize("body", [AROUND, INSIDE], ids=["around", "inside"])
def test_whoever_compiles_is_not_accused(verify, body):
    report, _ = verify(body)
    assert report.verdict == "pass", report.summary
    (buffers,) = [check for check in report.checks if check.code == "LS102"]
    assert buffers.comparisons, "the forward of a compiled model tells of its buffers as well"


@pytest.mark.parametrize("body", [AROUND, INSIDE], ids=["around", "inside"])
def test_a_mistake_in_it_is_seen(verify, body):
    body = body.replace("DDP(model))", "DDP(model), backend='aot_eager')")  # inductor takes half a minute
    report, failed = verify(body.replace("DDP(", "DDP(broadcast_buffers=False, module=", 1))
    assert "LS102" in failed, report.summary
