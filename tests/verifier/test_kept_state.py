"""An object beside the model may have a state of its own, which is saved and loaded with the model's: an engine's
masters and moments. A class may hold the strategy's contract, where ``wrap`` is a function that makes an instance.
"""

from __future__ import annotations

import pytest

ENGINE = """
import torch, torch.distributed as dist
from ddp_core import Contract
CONTRACT = Contract(optimizer="own", sync_buffers=False, broadcasts_at_start=False,
                    disclaims={"unused_parameters", "parameter_groups", "schedules", "clipping"})
class Engine:
    def __init__(self, model):
        self.parameters = [p for p in model.parameters() if p.requires_grad]
        self.first = [torch.zeros_like(p) for p in self.parameters]
    def backward(self, loss):
        loss.backward()
    def zero_grad(self):
        for parameter in self.parameters:
            parameter.grad = None
    @torch.no_grad()
    def step(self):
        for parameter, first in zip(self.parameters, self.first):
            dist.all_reduce(parameter.grad)
            first.mul_(0.5).add_(parameter.grad / dist.get_world_size())
            parameter.sub_(first, alpha=0.125)
    def state_dict(self):
        return {"first": self.first}
    def load_state_dict(self, saved):
        for mine, theirs in zip(self.first, saved["first"]):
            mine.copy_(LOADED)
def wrap(model):
    return Engine(model)
"""

WRAPPER = """
import torch.distributed as dist
from torch import nn
from ddp_core import Contract
class Wrapper(nn.Module):
    contract = Contract(sync_buffers=False, disclaims={"unused_parameters"})
    def __init__(self, module):
        super().__init__()
        self.module = module
        for tensor in module.state_dict().values():
            dist.broadcast(tensor, 0)
    def forward(self, *inputs):
        return self.module(*inputs)
    def sync_gradients(self):
        for parameter in self.module.parameters():
            dist.all_reduce(parameter.grad)
            parameter.grad /= dist.get_world_size()
def wrap(model):
    return Wrapper(model)
"""


@pytest.fixture
def reported(lockstep, tmp_path):
    def report(text: str, code: str, workload: str):
        path = tmp_path / "mine.py"
        path.write_text(text)
        return lockstep.verify(f"{path}:wrap", world_size=2, checks=(code,), workloads=(workload,))

    return report


@pytest.fixture
def checks(reported):
    def judged(text: str, code: str, workload: str):
        return next(check for check in reported(text, code, workload).checks if check.code == code)

    return judged


def test_an_engines_own_state_is_saved_and_loaded(checks):
    assert checks(ENGINE.replace("LOADED", "theirs"), "LS504", "saved").verdict == "pass"


def test_an_engine_that_loads_something_else_goes_on_otherwise(checks):
    lost = checks(ENGINE.replace("LOADED", "theirs * (1 + dist.get_rank())"), "LS504", "saved")
    assert lost.verdict == "fail"


def test_an_engine_that_does_not_offer_its_state_after_all_is_not_asked_to_load(reported):
    refusing = ENGINE.replace('return {"first": self.first}', "raise ERROR")
    failing = reported(refusing.replace("ERROR", "RuntimeError"), "LS504", "saved")
    assert not all(scenario.complete for scenario in failing.scenarios), "any other error is one"
    left = reported(refusing.replace("ERROR", "NotImplementedError"), "LS504", "saved")
    assert all(scenario.complete for scenario in left.scenarios)


def test_the_contract_of_the_class_that_wrap_returns_counts(checks):
    assert not checks(WRAPPER, "LS102", "buffers").claimed
    assert checks(WRAPPER.replace("sync_buffers=False, ", ""), "LS102", "buffers").verdict == "fail"
