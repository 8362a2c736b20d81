"""Parameters that no rank uses in the first step, and some ranks use in the second."""

from __future__ import annotations

import pytest

LISTED_ONCE = """
import torch, torch.distributed as dist

class wrap(torch.nn.Module):
    def __init__(self, module):
        super().__init__()
        self.module, self.listed = module, None
        for tensor in module.state_dict().values():
            whole = tensor.contiguous()
            dist.broadcast(whole, 0)
            tensor.copy_(whole)

    def forward(self, *inputs):
        for buffer in self.module.buffers():
            dist.broadcast(buffer, 0)
        return self.module(*inputs)

    def sync_gradients(self):
        trained = [p for p in self.module.parameters() if p.requires_grad]
        if self.listed is None or EVERY_STEP:
            used = torch.tensor([int(p.grad is not None) for p in trained])
            dist.all_reduce(used)
            self.listed = [p for p, number in zip(trained, used.tolist()) if number]
        for p in self.listed:
            p.grad = torch.zeros_like(p) if p.grad is None else p.grad.contiguous()
            p.grad /= dist.get_world_size()
            dist.all_reduce(p.grad)

EVERY_STEP = False
"""


@pytest.fixture
def verify(lockstep, tmp_path):
    def run(body):
        path = tmp_path / "mine.py"
        path.write_text(body)
        return lockstep.verify(f"{path}:wrap", world_size=2, profile="quick")

    return run


def test_a_list_made_in_the_first_step_is_too_short(verify):
    report = verify(LISTED_ONCE)
    (gradients,) = [check for check in report.checks if check.code == "LS201"]
    assert {(f.scenario, f.step) for f in gradients.failures} == {("unused", 1)}
    assert {f.parameter for f in gradients.failures} == {"branches.2.weight", "branches.2.bias"}


def test_a_list_of_each_step_is_right(verify):
    verify(LISTED_ONCE.replace("EVERY_STEP = False", "EVERY_STEP = True")).assert_pass()
