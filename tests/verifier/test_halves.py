"""Mistakes with half precision, which show only together with another condition, each compared with a correct twin.

Special here: mechanisms of mixed precision (masters in float32, main gradients, an optimizer of their own, a check for
infinities) in a few lines each, in the one situation where the mistake has consequences.
"""

from __future__ import annotations

from pathlib import Path

import pytest

HEAD = """
import torch, torch.distributed as dist
from torch import nn
from ddp_core import Contract
CONTRACT = Contract(sync_buffers=False, disclaims={"sparse_gradients"})
NARROW = (torch.float16, torch.bfloat16)
def mean_of(parameters):
    used = torch.tensor([int(p.grad is not None) for p in parameters])
    dist.all_reduce(used)
    for p, number in zip(parameters, used.tolist()):
        if number:
            gradient = (torch.zeros_like(p) if p.grad is None else p.grad).contiguous() / dist.get_world_size()
            dist.all_reduce(gradient)
            p.grad = gradient
class Replica(nn.Module):
    def __init__(self, module):
        super().__init__()
        self.module = module
        for tensor in module.state_dict().values():
            dist.broadcast(tensor, src=0)
    def forward(self, *inputs):
        return self.module(*inputs)
    def sync_gradients(self):
        mean_of([*self.module.parameters()])
class Masters(torch.optim.Optimizer):  # float32 copies of narrow weights, in an optimizer of their own
    rates_followed = options_kept = True
    def __init__(self, optimizer):
        self.wide, self.pairs, groups = optimizer, [], []
        for group in optimizer.param_groups:
            made = [(p, nn.Parameter(p.detach().float())) for p in group["params"] if p.dtype in NARROW]
            self.pairs += made
            options = {name: value for name, value in group.items() if name != "params"}
            groups.append({"params": [master for _, master in made], **(options if self.options_kept else {})})
        self.narrow = type(optimizer)(groups, **optimizer.defaults)
    param_groups = property(lambda self: self.wide.param_groups)
    state = property(lambda self: self.wide.state)
    defaults = property(lambda self: self.wide.defaults)
    def zero_grad(self, set_to_none=True):
        self.wide.zero_grad(set_to_none)
    @torch.no_grad()
    def step(self, closure=None):
        held = [p.grad for p, _ in self.pairs]
        for p, master in self.pairs:
            master.grad, p.grad = None if p.grad is None else p.grad.float(), None
        self.wide.step()
        for mine, group in zip(self.narrow.param_groups, self.wide.param_groups):
            if self.rates_followed:
                mine["lr"] = group["lr"]
        self.narrow.step()
        for (p, master), gradient in zip(self.pairs, held):
            p.grad = gradient
            p.copy_(master)
"""

BEFORE_THE_START = """
def wrap(model, optimizer):
    first = Masters(optimizer) if not RIGHT else None
    return Replica(model), first or Masters(optimizer)
"""

RATES = """
class Follows(Masters):
    rates_followed = RIGHT
def wrap(model, optimizer):
    return Replica(model), Follows(optimizer)
"""

OPTIONS = """
class Keeps(Masters):
    options_kept = RIGHT
def wrap(model, optimizer):
    return Replica(model), Keeps(optimizer)
"""

MAIN_GRADIENTS = """
class wrap(Replica):
    def __init__(self, module):
        super().__init__(module)
        self.main, hooked = {}, set()
        for owner in module.modules():
            for p in owner._parameters.values():
                if p is not None and p.dtype in NARROW and not (p in hooked and ONCE):
                    hooked.add(p)
                    p.register_post_accumulate_grad_hook(self.add)
    def add(self, p):
        self.main[p] = self.main.get(p, 0) + p.grad.float()
    def backward(self, loss):
        for p in self.main:
            p.grad = None
        loss.backward()
    def finish_gradient_synchronization(self):
        for p, gradient in self.main.items():
            p.grad = gradient.to(p.dtype)
        self.kept = self.main
        if CLEARED:
            self.main = {}
        super().sync_gradients()
    def zero_grad(self, set_to_none=True):
        self.module.zero_grad(set_to_none)
    sync_gradients = None
"""

NOT_USED = """
def average_gradients(model):
    wide = [p for p in model.parameters() if p.dtype not in NARROW]
    narrow = [p for p in model.parameters() if p.dtype in NARROW]
    mean_of(wide)
    if RIGHT:
        mean_of(narrow)
        return
    for p in narrow:
        if p.grad is not None:
            dist.all_reduce(p.grad)
            p.grad /= dist.get_world_size()
"""

OVERFLOW = """
class Looks(Replica):
    def sync_gradients(self):
        mine = [p.grad for p in self.parameters() if p.dtype in NARROW and p.grad is not None]
        found = torch.tensor([float(not all(gradient.isfinite().all() for gradient in mine))])
        if RIGHT:
            dist.all_reduce(found)
        self.overflow = bool(found)
        super().sync_gradients()
class Skips(Masters):
    def step(self, closure=None):
        if not self.replica.overflow:
            super().step()
def wrap(model, optimizer):
    replica, skips = Looks(model), Skips(optimizer)
    skips.replica = replica
    return replica, skips
"""

# Flat tensors only of the dtypes of this rank's gradients, and not of every rank's.
DTYPES = """
def average_gradients(model):
    given = [p for p in model.parameters() if p.requires_grad]
    used = torch.tensor([int(p.grad is not None) for p in given])
    mine = [p.dtype for p in given if RIGHT or p.grad is not None]
    dist.all_reduce(used)
    some = [p for p, number in zip(given, used.tolist()) if number]
    for dtype in dict.fromkeys(mine):
        mean_of([p for p in some if p.dtype == dtype])
"""

CLIPS = """
class wrap(Replica):
    def clip_grad_norm_(self, max_norm):
        given = [p for p in self.parameters() if p.grad is not None]
        squares = [(p.grad.float() if RIGHT and p.dtype in NARROW else p.grad).abs().pow(2).sum() for p in given]
        norm = sum(squares).sqrt()
        for p in given:
            p.grad.mul_((max_norm / (norm + 1e-6)).clamp(max=1.0))
        return norm
"""

FUSED = """
class wrap(Replica):
    def clip_grad_norm_(self, max_norm):
        given = [p for p in self.parameters() if p.grad is not None]
        norms = torch.stack([p.grad.double().norm() for p in given])
        norm = norms.sum() if not RIGHT and all(p.dtype == torch.float32 for p in given) else norms.norm()
        for p in given:
            p.grad.mul_((max_norm / (norm + 1e-6)).clamp(max=1.0))
        return norm
"""


# The sum of gradients exceeds float16: for a strategy that declares a sum, the overflow is no mistake.
SUMMED = """
CONTRACT = Contract(average="sum" if RIGHT else "mean", lossy="float16", disclaims={"sparse_gradients"})
def average_gradients(model):
    for p in model.parameters():
        half = p.grad.half()
        dist.all_reduce(half)
        p.grad = half.float() / (1 if RIGHT else dist.get_world_size())
"""


@pytest.mark.parametrize("right", [True, False])
def test_a_declared_sum_is_not_held_to_what_float16_holds(lockstep, tmp_path, only, right):
    only("large_gradients")
    path = tmp_path / "mine.py"
    path.write_text(f"{HEAD}RIGHT = {right}\n{SUMMED}")
    report = lockstep.verify(f"{path}:average_gradients", world_size=2, profile="standard")
    told = {check.code: check.verdict for check in report.checks if check.claimed}
    assert "fail" not in told.values() if right else told["LS201"] == "fail"


def test_a_resume_is_not_blamed_for_what_a_declared_loss_made_infinite(lockstep, only):
    only("rolled_back")  # with this seed a gradient first becomes infinite in the step after the restart
    path = Path(__file__).parents[1] / "specimens" / "fp16_overflow.py"
    report = lockstep.verify(f"{path}:wrap", world_size=2, profile="standard", seed=873, checks=["LS504"])
    check = next(check for check in report.checks if check.code == "LS504")
    assert check.verdict == "unknown"
    assert "not finite" in check.why


@pytest.mark.parametrize("right", [True, False])
@pytest.mark.parametrize(
    ("body", "situation", "code", "name"),
    [
        pytest.param(BEFORE_THE_START, "halves_start", "LS101", "wrap", id="masters_before_the_start"),
        pytest.param(RATES, "halves_scheduled", "LS202", "wrap", id="rates_of_masters"),
        pytest.param(OPTIONS, "halves_scheduled", "LS202", "wrap", id="options_of_masters"),
        pytest.param(
            MAIN_GRADIENTS.replace("ONCE", "RIGHT").replace("CLEARED", "True"),
            *("halves_dropped", "LS201", "wrap"),
            id="a_hook_for_each_name",
        ),
        pytest.param(
            MAIN_GRADIENTS.replace("ONCE", "True").replace("CLEARED", "RIGHT"),
            *("halves_dropped", "LS202", "wrap"),
            id="main_gradients_not_thrown_away",
        ),
        pytest.param(NOT_USED, "halves_unused", "LS201", "average_gradients", id="left_out_where_there_is_none"),
        pytest.param(FUSED, "clipping_float32", "LS201", "wrap", id="a_norm_for_float32_alone"),
        pytest.param(DTYPES, "halves_unused", "LS101", "average_gradients", id="dtypes_that_this_rank_has"),
        pytest.param(CLIPS, "halves_clipping", "LS201", "wrap", id="squares_that_overflow"),
        pytest.param(OVERFLOW, "halves_overflow", "LS101", "wrap", id="infinities_looked_for_at_home"),
    ],
)
def test_halves(lockstep, tmp_path, only, body, situation, code, name, right):
    only(situation)
    path = tmp_path / "mine.py"
    path.write_text(f"{HEAD}RIGHT = {right}\n{body}")
    report = lockstep.verify(f"{path}:{name}", world_size=2, profile="standard")  # chosen by its text: precision
    check = next(check for check in report.checks if check.code == code)
    assert check.verdict == ("pass" if right else "fail"), check
    assert report.verdict == ("pass" if right else "fail")


READ_EARLY = """
import torch, torch.distributed as dist
from torch import nn
class wrap(nn.Module):  # reads what is of two bytes before it has waited, from the second backward on
    def __init__(self, module):
        super().__init__()
        self.module, self.number = module, 0
        for tensor in module.state_dict().values():
            dist.broadcast(tensor, src=0)
    def forward(self, *inputs):
        return self.module(*inputs)
    def sync_gradients(self):
        self.number += 1
        for p in self.module.parameters():
            if p.grad is None:
                continue
            work = dist.all_reduce(p.grad, async_op=True)
            early = p.grad.clone() if self.number > 1 and p.element_size() == 2 and not RIGHT else None
            work.wait()
            if early is not None:
                p.grad.copy_(early)
            p.grad /= dist.get_world_size()
"""


@pytest.mark.parametrize("right", [True, False])
def test_what_is_no_number_is_told_where_no_bound_is_known(lockstep, tmp_path, only, right):
    """After the first step the effect of half-precision roundings has no known bound, but they cannot give NaN."""
    path = tmp_path / "mine.py"
    path.write_text(f"RIGHT = {right}\n{READ_EARLY}")
    only("mixed_dtypes")
    report = lockstep.verify(f"{path}:wrap", world_size=2, profile="standard")
    failed = {check.code: {found.cause for found in check.failures} for check in report.checks if check.failures}
    assert set(failed) == (set() if right else {"LS201", "LS401"})
    assert right or "read_before_wait" in failed["LS201"] & failed["LS401"]
    assert report.verdict == ("pass" if right else "fail")
