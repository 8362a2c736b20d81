"""Pairs of conditions: restarts early or twice, what is unused, strided or frozen. Each mistake has a right twin.

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


# Skips what it has no gradient of, and takes a single input, as a homework's model does.
ONE_INPUT = """
class wrap(nn.Module):
    contract = Contract(broadcasts_at_start=False, sync_buffers=False)
    def __init__(self, module):
        super().__init__()
        self.module = module
    def forward(self, x):
        return self.module(x)
    def finish_gradient_synchronization(self):
        for parameter in self.module.parameters():
            if RIGHT:
                used = torch.tensor(parameter.grad is not None, dtype=torch.uint8)
                dist.all_reduce(used, dist.ReduceOp.MAX)
                if used and parameter.grad is None:
                    parameter.grad = torch.zeros_like(parameter)
            if parameter.grad is not None:
                parameter.grad /= dist.get_world_size()
                dist.all_reduce(parameter.grad)
"""

# Zeros in the place of a gradient that this rank lacks do not lie in memory as the others' do.
FLAT_ZEROS = """
def average_gradients(model):
    for parameter in model.parameters():
        used = torch.tensor(parameter.grad is not None, dtype=torch.uint8)
        dist.all_reduce(used, dist.ReduceOp.MAX)
        if used and parameter.grad is None:
            size = parameter.numel()
            parameter.grad = torch.zeros_like(parameter) if RIGHT else torch.zeros(size).double().view(parameter.shape)
        if used:
            lies = parameter.grad.as_strided((parameter.numel(),), (1,))
            dist.all_reduce(lies)
            lies /= dist.get_world_size()
"""

# What a micro-batch used takes the place of what the one before it used; of three, the first is forgotten.
LAST_TWO = """
class wrap(nn.Module):
    contract = Contract(broadcasts_at_start=False, sync_buffers=False)
    def __init__(self, module):
        super().__init__()
        self.module, self.trained = module, [p for p in module.parameters() if p.requires_grad]
        self.now = self.before = [0] * len(self.trained)
        for place, parameter in enumerate(self.trained):
            parameter.register_hook(lambda gradient, place=place: self.now.__setitem__(place, 1))
    def forward(self, x):
        kept = self.before if RIGHT else [0] * len(self.now)
        self.before, self.now = [max(two) for two in zip(self.now, kept)], [0] * len(self.trained)
        return self.module(x)
    def finish_gradient_synchronization(self):
        used = torch.tensor([max(two) for two in zip(self.now, self.before)])
        self.now = self.before = [0] * len(self.trained)
        dist.all_reduce(used, dist.ReduceOp.MAX)
        for parameter, flag in zip(self.trained, used):
            if flag:
                parameter.grad = torch.zeros_like(parameter) if parameter.grad is None else parameter.grad
                parameter.grad /= dist.get_world_size()
                dist.all_reduce(parameter.grad)
"""

# Inner groups that are empty on this rank are left out, and the others' options are then of other groups.
WITHOUT_EMPTY_GROUPS = """
class WithOptimizer(DistributedDataParallel):
    def wrap_optimizer(self, cls, parameters, **options):
        class Owned(cls):
            contract = Contract(sharded=True)
            def __init__(self, parameters, **options):
                super().__init__(parameters, **options)
                given = [p for group in self.param_groups for p in group["params"]]
                self.owner = {p: place % dist.get_world_size() for place, p in enumerate(given)}
                own = [[p for p in g["params"] if self.owner[p] == dist.get_rank()] for g in self.param_groups]
                self.inner = cls([{**g, "params": mine} for g, mine in zip(self.param_groups, own) if mine])
                self.outer = [g for g, mine in zip(self.param_groups, own) if mine or not RIGHT]
            def step(self, closure=None):
                for inner, outer in zip(self.inner.param_groups, self.outer):
                    inner.update({key: value for key, value in outer.items() if key != "params"})
                self.inner.step()
                for parameter, owner in self.owner.items():
                    dist.broadcast(parameter.data, owner)
        return Owned(parameters, **options)
def wrap(model):
    return WithOptimizer(model, find_unused_parameters=True)
"""

LOADED_FLAT = """
class wrap(DistributedDataParallel):
    def load_state_dict(self, saved):
        with torch.no_grad():
            for name, tensor in self.state_dict().items():
                (tensor if RIGHT else tensor.reshape(-1)).copy_(saved[name] if RIGHT else saved[name].reshape(-1))
"""

FROZEN_COPIES = """
class wrap(DistributedDataParallel):
    def __init__(self, module):
        for parameter in module.parameters():
            whole = parameter.detach().contiguous()
            dist.broadcast(whole, 0)
            if RIGHT or parameter.requires_grad:
                parameter.data.copy_(whole)
        super().__init__(module, init_sync=False)
"""

NO_LISTS = """
class wrap(nn.Module):
    contract = Contract(broadcasts_at_start=False, sync_buffers=False)
    def __init__(self, module):
        super().__init__()
        self.module = module
    def forward(self, *inputs):
        output = self.module(*inputs)
        self.found = [*self.tensors(output)]
        return output
    def tensors(self, output):
        if isinstance(output, torch.Tensor):
            yield output
        elif isinstance(output, (tuple, list) if RIGHT else tuple):
            for one in output:
                yield from self.tensors(one)
        elif isinstance(output, dict):
            yield from self.tensors((*output.values(),))
    def finish_gradient_synchronization(self):
        for parameter in self.module.parameters() if self.found else ():
            parameter.grad /= dist.get_world_size()
            dist.all_reduce(parameter.grad)
"""

# A script calls train() when it trains already: the hooks are there twice.
TRAINS_TWICE = """
class wrap(nn.Module):
    contract = Contract(broadcasts_at_start=False, sync_buffers=False)
    def __init__(self, module):
        super().__init__()
        self.module, self.handles = module, []
        self.train()
    def train(self, mode=True):
        if RIGHT or not mode:
            for handle in self.handles:
                handle.remove()
            self.handles = []
        if mode:
            half = lambda gradient: gradient / dist.get_world_size()
            self.handles += [p.register_hook(half) for p in self.module.parameters() if p.requires_grad]
        return super().train(mode)
    def forward(self, *inputs):
        return self.module(*inputs)
    def sync_gradients(self):
        for parameter in self.module.parameters():
            if parameter.grad is not None:
                dist.all_reduce(parameter.grad)
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
        pytest.param(ONE_INPUT, "wrap", ["unused"], "LS201", id="one_input_and_none_skipped"),
        pytest.param(FLAT_ZEROS, "average_gradients", ["unused_strided"], "LS201", id="zeros_lie_otherwise"),
        pytest.param(LAST_TWO, "wrap", ["unused_accumulated"], "LS201", id="used_in_the_last_two"),
        pytest.param(WITHOUT_EMPTY_GROUPS, "wrap", ["groups"], "LS202", id="without_empty_groups"),
        pytest.param(LOADED_FLAT, "wrap", ["restart_strided"], "LS504", id="loaded_into_a_copy"),
        pytest.param(FROZEN_COPIES, "wrap", ["strided_start"], "LS002", id="frozen_and_strided"),
        pytest.param(NO_LISTS, "wrap", ["list_outputs"], "LS201", id="no_lists"),
        pytest.param(TRAINS_TWICE, "wrap", ["evaluation"], "LS201", id="trains_twice"),
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
