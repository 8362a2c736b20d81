"""Optimizers with an update rule of their own: compared with the same strategy on one rank.

None of their steps equals a single process's with SGD, and the correct ones must still pass.
"""

from __future__ import annotations

import json
import shutil
from types import SimpleNamespace

import numpy as np
import pytest

from tests.conftest import ROOT
from verifier.engine import judge
from verifier.judge.alone import _nearest
from verifier.judge.distance import off_by, some_rest

HEAD = """
import torch, torch.distributed as dist
from ddp_core import Contract, Driver
from torch.nn.parallel import DistributedDataParallel

class Lion(torch.optim.Optimizer):
    @torch.no_grad()
    def step(self, closure=None):
        for group in self.param_groups:
            for p in group["params"]:
                if p.grad is None:
                    continue
                gradient = p.grad.to_dense() if p.grad.is_sparse else p.grad
                momentum = self.state[p].setdefault("momentum", torch.zeros_like(p))
                p.sub_(torch.sgn(0.9 * momentum + 0.1 * gradient), alpha=group["lr"] FACTOR)
                momentum.mul_(0.99).add_(gradient, alpha=0.01)
"""
WARMING_UP = """
class Warm(Lion):
    num_steps = 0

    def step(self):
        asked = [group["lr"] for group in self.param_groups]
        for group in self.param_groups:
            group["lr"] *= self.num_steps >= RESTS
        super().step()
        for group, lr in zip(self.param_groups, asked):
            group["lr"] = lr
        self.num_steps += 1
"""
DRIVEN = """
class wrap(Driver):
    def prepare(self, model):
        BEFORE
        return DistributedDataParallel(model, find_unused_parameters=True)

    def make_optimizer(self, cls, parameters, *, lr, **options):
        return MADE
"""
BESIDE = """
class Both:
    def __init__(self, parameters, lr):
        matrices = [p for p in parameters if p.ndim == 2]
        rest = [p for p in parameters if p.ndim != 2]
        self.parts = [Lion(matrices or rest, {"lr": lr}), torch.optim.AdamW(rest or matrices, lr)]
        self.param_groups = [group for part in self.parts for group in part.param_groups]

    def zero_grad(self, set_to_none=True):
        for part in self.parts:
            part.zero_grad(set_to_none)

    def step(self):
        for part in self.parts:
            part.step()
"""
WRAPPED = """
class Zero(DistributedDataParallel):
    def wrap_optimizer(self, cls, parameters, *, lr, **options):
        return Lion(parameters, {"lr": lr})

def wrap(model):
    return Zero(model, find_unused_parameters=True)
"""
INSIDE = """
class Reducing(torch.optim.Optimizer):
    @torch.no_grad()
    def step(self, closure=None):
        for group in self.param_groups:
            for p in group["params"]:
                gradient = p.grad.contiguous()
                dist.all_reduce(gradient)
                p.sub_(torch.sgn(gradient), alpha=group["lr"])

class wrap(Driver):
    contract = Contract(sharded=True, sync_buffers=False, disclaims={"unused_parameters", "sparse_gradients"})
    can_clip = False

    def prepare(self, model):
        BEFORE
        for tensor in [*model.parameters(), *model.buffers()]:
            whole = tensor.data.contiguous()
            dist.broadcast(whole, 0)
            tensor.data.copy_(whole)
        return model

    def make_optimizer(self, cls, parameters, *, lr, **options):
        return Reducing(parameters, {"lr": lr})
"""
REFUSES_ONE = 'if dist.get_world_size() == 1:\n            raise RuntimeError("one device needs no such thing")'


@pytest.fixture
def verify(lockstep, tmp_path):
    def run(body, *, made='Lion(parameters, {"lr": lr})', before="", factor="", declared="", **asked):
        path = tmp_path / "mine.py"
        text = HEAD.replace("FACTOR", factor) + body.replace("MADE", made).replace("BEFORE", before) + declared
        path.write_text(text)
        return lockstep.verify(f"{path}:wrap", out=tmp_path / "out", **{"world_size": 2, **asked})

    return run


def _check(report, code):
    return next(check for check in report.checks if check.code == code)


@pytest.mark.usefixtures("in_short")
@pytest.mark.parametrize("profile", ["quick", "standard"])
def test_a_rule_of_its_own_passes_and_the_report_says_to_what_it_was_held(verify, tmp_path, profile):
    report = verify(DRIVEN, profile=profile)
    assert report.verdict == "pass", report.summary
    assert _check(report, "LS202").comparisons > 50
    assert "Lion" in {scenario.own_rule for scenario in report.scenarios}
    assert judge(tmp_path / "out").verdict == "pass"
    launched = json.loads((tmp_path / "out/scenarios/plain/alone/scenario.json").read_text())
    assert (launched["world_size"], launched["alone_for"]) == (1, 2)
    assert not [*tmp_path.glob("out/scenarios/*/nudged_*")]  # nothing differs that roundings would have to explain


def test_a_run_on_one_rank_that_was_not_made_is_no_pass(verify, tmp_path, only):
    """As where ``--timeout`` comes before it: without its standard, an update is not known to be right."""
    only("plain", "realistic")
    assert verify(DRIVEN, profile="quick").verdict == "pass"
    shutil.rmtree(tmp_path / "out/scenarios/realistic/alone")
    found = _check(judge(tmp_path / "out"), "LS202")
    assert (found.verdict, found.claimed) == ("unknown", True)
    assert "realistic: the run on one rank" in found.why


def test_a_rule_of_its_own_with_a_lossy_wire_is_not_said_to_pass(verify, only):
    only("plain", "realistic", "loss_no_number")
    declared = "\n    contract = Contract(lossy='bfloat16')"
    found = _check(
        verify(DRIVEN.replace("class wrap(Driver):", "class wrap(Driver):" + declared), profile="standard"), "LS202"
    )
    assert (found.verdict, found.claimed, found.failed) == ("unknown", False, 0)
    assert "the strategy's own (Lion)" in found.why


@pytest.mark.usefixtures("in_short")
@pytest.mark.parametrize("made", ["torch.optim.RMSprop(parameters, 1e-3)", "Both(parameters, lr)"])
def test_another_of_torchs_and_two_side_by_side_are_own_rules(verify, made):
    report = verify(BESIDE + DRIVEN, made=made, checks=("LS101", "LS201", "LS202"), profile="standard")
    assert report.verdict == "pass", report.summary
    assert _check(report, "LS202").claimed


def test_what_depends_on_the_number_of_ranks_is_caught(verify):
    report = verify(DRIVEN, factor="* dist.get_world_size()")
    first = _check(report, "LS202").failures[0]
    assert (report.verdict, first.cause) == ("fail", "update_scaled")
    assert "on one rank" in first.explanation
    assert "the world size" in first.explanation


@pytest.mark.parametrize(
    ("factor", "said"), [("* 0.0", "no weight moved in 3 steps"), ('* float("nan")', "NaN or infinite, on one rank")]
)
def test_where_nothing_moves_and_where_all_is_nan_nothing_is_shown(verify, factor, said):
    report = verify(DRIVEN, factor=factor, profile="quick")
    assert (report.verdict, _check(report, "LS202").verdict) == ("unknown", "unknown"), report.summary
    assert said in _check(report, "LS202").why
    assert not any(scenario.refused for scenario in report.scenarios)  # a refusal would mean that torch raised for NaN


@pytest.mark.usefixtures("in_short")
@pytest.mark.parametrize("num_steps", [1, 2])
def test_a_warm_up_that_starts_at_a_rate_of_zero_passes(verify, num_steps):
    body = WARMING_UP.replace("RESTS", str(num_steps)) + DRIVEN
    report = verify(body, made='Warm(parameters, {"lr": lr})', profile="standard")
    assert report.verdict == "pass", report.summary


@pytest.mark.parametrize(
    ("factor", "said"), [("* 0.0", "no weight moved in 3 steps"), ('* float("nan")', "NaN or infinite by a rule")]
)
def test_of_a_lossy_one_that_rests_or_becomes_nan_nothing_is_shown_either(verify, factor, said):
    declared = '\nwrap.contract = Contract(optimizer="own", lossy="bfloat16")\n'
    report = verify(DRIVEN, factor=factor, declared=declared, checks=("LS202",), profile="quick")
    assert (report.verdict, _check(report, "LS202").verdict) == ("unknown", "unknown"), report.summary
    assert said in _check(report, "LS202").why
    report = verify(DRIVEN, declared=declared, checks=("LS101", "LS202"), profile="quick")
    assert report.verdict == "pass", report.summary
    assert "Updates (LS202) were not judged: the update rule is the strategy's own" in report.summary


def test_what_is_handed_a_class_is_held_to_it_unless_it_says_otherwise(verify):
    report = verify(WRAPPED)
    assert report.verdict == "fail"
    assert "Contract(optimizer='own')" in (_check(report, "LS202").failures[0].hint or "")
    report = verify(WRAPPED, declared='\nCONTRACT = Contract(optimizer="own")\n')
    assert report.verdict == "pass", report.summary


@pytest.mark.usefixtures("in_short")
def test_reduced_inside_the_step_by_a_rule_of_its_own(verify):
    assert verify(INSIDE, profile="standard").verdict == "pass"


def test_what_cannot_be_run_on_one_rank_is_not_judged(verify):
    report = verify(DRIVEN, before=REFUSES_ONE)
    update = _check(report, "LS202")
    assert (report.verdict, update.claimed) == ("pass", False), report.summary  # gradients and lockstep were judged
    report = verify(INSIDE, before=REFUSES_ONE)
    assert report.verdict == "unknown"
    assert "one device needs no such thing" in report.summary


def test_movement_is_compared_as_a_whole():
    start, wanted = np.zeros(1000), np.ones(1000)
    assert off_by(wanted, wanted, start) == 0
    assert off_by(wanted * 1.5, wanted, start) == pytest.approx(0.5)
    assert off_by(start, wanted, start) == pytest.approx(1)
    assert off_by(np.full(1000, np.nan), wanted, start) == np.inf
    assert off_by(np.ones(999), wanted, start) == np.inf
    assert off_by(np.full(4, 2.0), np.full(4, 1.0), np.full(4, 1.0)) > 1e6  # it moved where it should not


def test_elements_that_were_left_behind_are_seen_in_whatever_company():
    draw = np.random.default_rng(0)
    start = draw.normal(size=40_000)
    wanted = start + draw.normal(size=40_000) / 100
    observed = wanted.copy()
    assert not some_rest(observed, wanted, start)
    tail = np.argsort(np.abs(wanted - start))[-3:]
    observed[tail] = start[tail]
    assert off_by(observed, wanted, start) < 0.05
    assert some_rest(observed, wanted, start)
    least = np.argsort(np.abs(wanted - start))[:3]
    assert not some_rest(np.where(np.isin(np.arange(40_000), least), start, wanted), wanted, start)


def test_what_lies_between_two_nudges_is_no_mistake_and_what_lies_beyond_them_is():
    """The second element's gradient is only a rounding, whose sign the rule takes, so it may move either way."""

    def alone(*values):
        weight = SimpleNamespace(values=np.array(values))
        return SimpleNamespace(ranks=[SimpleNamespace(completed=True, tensor=lambda *place: weight)])

    recording = SimpleNamespace(nudged=[alone(1.0, 1.0), alone(1.0, -1.0)])
    wanted, start = np.array([1.0, 1.0]), np.zeros(2)
    for observed, off in (([1.0, -1.0], 0), ([1.0, -2.0], 0.7), ([-1.0, 1.0], 1.4)):
        nearest = _nearest(recording, 0, "w", np.array(observed), wanted)
        assert off_by(np.array(observed), nearest, start) == pytest.approx(off, abs=0.1)
    recording.nudged = recording.nudged[:1]  # an incomplete one shows nothing
    assert _nearest(recording, 0, "w", np.array([1.0, -1.0]), wanted) is wanted


def test_a_sign_that_only_roundings_have_is_no_mistake(lockstep, only):
    """With this seed a bias has a gradient of 1e-17 in `groups`, of one sign on two ranks and of the other on one."""
    only("plain", "groups")
    path = str(ROOT / "tests/controls/own_update_rule.py:OwnRule")
    lockstep.verify(path, world_size=2, profile="standard", workloads=("exact",), seed=681).assert_pass()


SUMS = """
class Sums(DistributedDataParallel):
    num_steps = 0

    def wrap_optimizer(self, cls, parameters, **options):
        optimizer = cls(parameters, **options)
        optimizer.register_step_post_hook(self.count)
        return optimizer

    def count(self, *_):
        self.num_steps += 1

def summed(wrapped, bucket):
    future = dist.all_reduce(bucket.buffer(), async_op=True).get_future()
    return future.then(lambda done: done.value()[0] DIVISION)

CONTRACT = Contract(average="sum", disclaims={"two_backwards"})

def wrap(model):
    wrapped = Sums(model, find_unused_parameters=True)
    wrapped.register_comm_hook(wrapped, summed)
    return wrapped
"""


@pytest.mark.usefixtures("in_short")
@pytest.mark.parametrize(("division", "verdict"), [("", "pass"), ("/ (1 + wrapped.num_steps // 2)", "fail")])
def test_declared_sums_are_judged_in_every_step_and_clipped(verify, division, verdict):
    report = verify(SUMS.replace("DIVISION", division), profile="standard")
    assert report.verdict == verdict, report.summary
    found = {failure.scenario: failure.step for failure in _check(report, "LS202").failures}
    assert set(found.values()) <= {2}, found  # the third step, which was once not compared
    assert verdict == "pass" or found


BESIDE_IT = """
class wrap(Driver):
    def prepare(self, model):
        return DistributedDataParallel(model, find_unused_parameters=True)

    def make_optimizer(self, cls, parameters, *, lr, **options):
        others = [torch.optim.RMSprop(those, lr) for those in [parameters[1::2]] if those]
        self.parts = [Lion(parameters[::2], {"lr": lr}), *others]
        return self.parts[0]

    def zero_grad(self, optimizer, *, set_to_none=True):
        for part in self.parts:
            part.zero_grad(set_to_none)

    def step(self, optimizer):
        for part in self.parts:
            part.step()
"""


@pytest.mark.usefixtures("in_short")
def test_state_that_is_saved_on_no_number_of_ranks_is_no_question_of_replicas(verify):
    """The narrow path saturates by these rules: what no gradient reaches any more may rest after a restart."""
    report = verify(BESIDE_IT, profile="standard", checks=("LS202", "LS504"))
    assert report.verdict == "pass", report.summary
    assert _check(report, "LS504").comparisons > 0


ENGINE = """
import torch
from torch.nn.parallel import DistributedDataParallel

class wrap:
    def __init__(self, model):
        self.module = DistributedDataParallel(model, find_unused_parameters=True)
        self.MADE

    def __call__(self, *inputs):
        return self.module(*inputs)

    def train(self, mode=True):
        self.module.train(mode)
        return self

    def backward(self, loss):
        loss.backward()

    def step(self):
        self.STEPPED
"""


@pytest.mark.usefixtures("in_short")
@pytest.mark.parametrize(
    "made",
    [
        "optimizer = torch.optim.SGD(model.parameters(), 0.02)",
        "optimizer = torch.optim.AdamW(model.parameters(), 0.003, weight_decay=0.1)",
        "inner = torch.optim.SGD(model.parameters(), 0.02, momentum=0.5)",
    ],
)
def test_an_engine_with_an_optimizer_of_its_own_is_held_to_its_own_rule(lockstep, tmp_path, made):
    path = tmp_path / "mine.py"
    path.write_text(ENGINE.replace("MADE", made).replace("STEPPED", made.split()[0] + ".step()"))
    report = lockstep.verify(f"{path}:wrap", world_size=2, profile="standard", checks=("LS202",), out=tmp_path / "out")
    assert report.verdict == "pass", report.summary
    assert _check(report, "LS202").comparisons > 200


@pytest.mark.parametrize(
    ("made", "stepped", "cause"),
    [
        ("optimizer = None", 'optimizer.param_groups[0]["lr"] /= 2; self.optimizer.step()', "update_scaled"),
        ("optimizer = None", "module.train()", "not_stepped"),  # and the loop's optimizer is not stepped, either
        ("rate = 0.1", "module.train()", "not_stepped"),
    ],
)
def test_an_engine_that_is_given_an_optimizer_or_never_steps_is_held_to_what_is_asked(
    lockstep, tmp_path, made, stepped, cause
):
    path = tmp_path / "mine.py"
    path.write_text(ENGINE.replace("MADE", made).replace("STEPPED", stepped))
    report = lockstep.verify(f"{path}:wrap", world_size=2, checks=("LS202",), out=tmp_path / "out")
    assert (report.verdict, _check(report, "LS202").failures[0].cause) == ("fail", cause)
