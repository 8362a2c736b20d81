"""Restarts that come early or twice, and what else two conditions show together; each with a twin that is right.

Special here: only one situation is run (of an early restart also ``restart``, its control experiment). Whether all
others pass the mistake is not tested.
"""

from __future__ import annotations

import pytest

HEAD = """
import math
import torch, torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from ddp_core import Contract, DataParallel, Driver
"""

# Whenever it saves, names get a prefix; what is loaded has one of them taken off.
PREFIXED = """
class wrap(DistributedDataParallel):
    def state_dict(self, *args, **kwargs):
        saved = self.module.state_dict()
        return {f"module.{name}": value for name, value in saved.items()} | {"prefixes": self.prefixes}
    prefixes = 1
    def load_state_dict(self, saved, strict=True):
        times = saved.pop("prefixes")
        if not RIGHT and times > 1:
            raise KeyError("module.module.")
        self.prefixes = 1 if RIGHT else times + 1
        self.module.load_state_dict({name.removeprefix("module."): value for name, value in saved.items()}, strict)
"""

# What was loaded is put in place when the next step begins; a state that is asked for before that is the old one.
PUT_LATER = """
class WithOptimizer(DistributedDataParallel):
    def wrap_optimizer(self, cls, parameters, **options):
        class Later(cls):
            waiting = None
            def load_state_dict(self, saved):
                self.waiting = saved
            def state_dict(self):
                if RIGHT:
                    self.put()
                return super().state_dict()
            def put(self):
                if self.waiting is not None:
                    super().load_state_dict(self.waiting)
                    self.waiting = None
            def step(self, closure=None):
                self.put()
                super().step(closure)
        return Later(parameters, **options)
def wrap(model):
    return WithOptimizer(model, find_unused_parameters=True)
"""

# Masters are made in the first step. Before it, zeros are saved in their place, and loaded.
MADE_IN_STEP = """
class WithOptimizer(DistributedDataParallel):
    def wrap_optimizer(self, cls, parameters, **options):
        class Masters(cls):
            masters = None
            def made(self):
                given = [p for group in self.param_groups for p in group["params"]]
                if self.masters is None:
                    self.masters = [p.detach().clone() for p in given]
                return given
            def state_dict(self):
                given = [p for group in self.param_groups for p in group["params"]]
                kept = self.masters or [(p.detach() if RIGHT else torch.zeros_like(p)) for p in given]
                return {**super().state_dict(), "masters": [master.clone() for master in kept]}
            def load_state_dict(self, saved):
                self.masters = [master.clone() for master in saved["masters"]]
                super().load_state_dict({name: saved[name] for name in ("state", "param_groups")})
            @torch.no_grad()
            def step(self, closure=None):
                for parameter, master in zip(self.made(), self.masters):
                    parameter.copy_(master)
                super().step(closure)
                for parameter, master in zip(self.made(), self.masters):
                    master.copy_(parameter)
        return Masters(parameters, **options)
def wrap(model):
    return WithOptimizer(model, find_unused_parameters=True)
"""

# A guard that looks at what each backward brings forgets, in the next micro-batch, what it saw in the one before.
BY_THE_LAST = """
class wrap(DistributedDataParallel):
    infinite = False
    def __init__(self, module):
        super().__init__(module)
        for parameter in module.parameters():
            parameter.register_hook(self.look)
    def look(self, gradient):
        self.infinite = self.infinite or not bool(gradient.isfinite().all())
    def backward(self, loss):
        self.infinite = RIGHT and self.infinite
        loss.backward()
    def step(self):
        flag = torch.tensor(float(self.infinite))
        dist.all_reduce(flag)
        self.infinite = False
        if not flag:
            self.optimizer.step()
"""

# The used parameters are the bits of one number, of which an int64 has 63.
BITS = """
def average_gradients(model):
    trained = [p for p in model.parameters() if p.requires_grad]
    width = 62 if RIGHT else len(trained)
    used = torch.zeros(math.ceil(len(trained) / width), dtype=torch.int64)
    for place, parameter in enumerate(trained):
        if parameter.grad is not None:
            used[place // width] |= 1 << place % width % 64 if place % width < 63 else 0
    every = [torch.empty_like(used) for _ in range(dist.get_world_size())]
    dist.all_gather(every, used)
    for place, parameter in enumerate(trained):
        if any(int(of[place // width]) >> place % width & 1 for of in every):
            mine = torch.zeros_like(parameter) if parameter.grad is None else parameter.grad
            dist.all_reduce(mine)
            parameter.grad = mine / dist.get_world_size()
"""

SQUARES = """
class wrap(DistributedDataParallel):
    def clip_grad_norm_(self, max_norm, norm_type=2.0):
        gradients = [p.grad for p in self.module.parameters() if p.grad is not None]
        squares = [(g.abs() ** 2 if RIGHT else (g ** 2).real).sum() for g in gradients]
        total = torch.stack([square.double() for square in squares]).sum().abs().sqrt()
        for gradient in gradients:
            gradient.mul_((max_norm / (total + 1e-6)).clamp(max=1.0))
        return total
"""

# Moments are put in real buffers when they are made, which keeps the real parts.
REAL_MOMENTS = """
class WithOptimizer(DistributedDataParallel):
    def wrap_optimizer(self, cls, parameters, **options):
        class Moments(cls):
            def step(self, closure=None):
                super().step(closure)
                for state in () if RIGHT else self.state.values():
                    if "exp_avg" in state and state["exp_avg"].is_complex():
                        state["exp_avg"].imag.zero_()
        return Moments(parameters, **options)
def wrap(model):
    return WithOptimizer(model, find_unused_parameters=True)
"""


@pytest.mark.parametrize("right", [True, False])
@pytest.mark.parametrize(
    ("body", "name", "situations", "code"),
    [
        pytest.param(PREFIXED, "wrap", ["restart_twice"], "LS504", id="prefixed_again"),
        pytest.param(PUT_LATER, "wrap", ["restart_twice"], "LS504", id="put_in_place_by_the_step"),
        pytest.param(MADE_IN_STEP, "wrap", ["restart", "restart_early"], "LS504", id="made_in_the_first_step"),
        pytest.param(BY_THE_LAST, "wrap", ["overflow_accumulated"], "LS202", id="guard_of_the_last_micro_batch"),
        pytest.param(BITS, "average_gradients", ["unused_many"], "LS201", id="bits_of_one_number"),
        pytest.param(SQUARES, "wrap", ["clipping_complex"], "LS201", id="squares_of_complex_numbers"),
        pytest.param(REAL_MOMENTS, "wrap", ["complex_adamw"], "LS202", id="real_parts_of_moments"),
    ],
)
def test_it_is_told(lockstep, tmp_path, only, body, name, situations, code, right):
    only(*situations)
    path = tmp_path / "mine.py"
    path.write_text(f"{HEAD}RIGHT = {right}\n{body}")
    report = lockstep.verify(f"{path}:{name}", world_size=2, checks=[code], profile="thorough")
    check = next(check for check in report.checks if check.code == code)
    assert check.verdict == ("pass" if right else "fail"), (report.summary, check)
    assert {failure.scenario.partition("-")[0] for failure in check.failures} <= {situations[-1]}
