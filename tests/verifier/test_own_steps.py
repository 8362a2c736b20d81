"""A strategy's own optimizers that change gradients inside ``step()``, depend on sizes, or move nothing."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest

from verifier.judge.inside_step import before_its_own_step
from verifier.recording import EARLIER, RankRecording, Recording, Tensor

HEAD = """
import torch, torch.distributed as dist
from torch.distributed.algorithms.ddp_comm_hooks.default_hooks import fp16_compress_hook
from torch.nn.parallel import DistributedDataParallel
from ddp_core import Contract, Driver

class Own(torch.optim.Optimizer):
    @torch.no_grad()
    def step(self, closure=None):
        for group in self.param_groups:
            for p in group["params"]:
                if p.grad is not None:
                    self.update(p, group, self.state[p])

class Around:
    def __init__(self, inner, factor=None):
        self.inner, self.factor = inner, factor or 1 / dist.get_world_size()

    def __getattr__(self, name):
        return getattr(self.__dict__["inner"], name)

    @torch.no_grad()
    def step(self):
        for group in self.inner.param_groups:
            for p in group["params"]:
                if p.grad is not None:
                    p.grad.mul_(self.factor)
        self.inner.step()

class wrap(Driver):
    contract = Contract(disclaims={"sparse_gradients", "state_dict"ALSO})

    def prepare(self, model):
        wrapped = DistributedDataParallel(model, find_unused_parameters=True)
        if self.contract.lossy:
            wrapped.register_comm_hook(None, fp16_compress_hook)
        return wrapped

    def make_optimizer(self, cls, parameters, **options):
        return MADE
"""
BY_SIZE = """
def update(self, p, group, state):
    gradient = p.grad + group.get("weight_decay", 0.0) * p
    if p.ndim == 2 and min(p.shape) >= 16:
        gradient = gradient / (gradient.norm() + 1e-12)
    state["m"] = state.get("m", 0) * group.get("momentum", 0.0) + gradient
    p.sub_(state["m"], alpha=group["lr"])

Own.update = update
"""
BUILT_IN_DECAY = """
def update(self, p, group, state):
    gradient = p.grad + (DECAY + group.get("weight_decay", 0.0)) * p
    state["m"] = state.get("m", 0) * group.get("momentum", 0.0) + gradient
    p.sub_(state["m"], alpha=group["lr"])

Own.update = update
"""
ON_COPIES = """
def update(self, p, group, state):
    p.clone().sub_(p.grad.sign(), alpha=group["lr"])

Own.update = update
"""
ADAMW = """
def update(self, p, group, state):
    state["n"], asked = state.get("n", 0) + 1, ASKED
    state["m"] = 0.9 * state.get("m", 0.0) + 0.1 * p.grad
    state["v"] = 0.999 * state.get("v", 0.0) + 0.001 * p.grad**2
    mean, square = state["m"] / (1 - 0.9 ** state["n"]), state["v"] / (1 - 0.999 ** state["n"])
    p.mul_(1 - asked["lr"] * asked.get("weight_decay", 0.01)).sub_(mean / (square + 1e-8).sqrt(), alpha=asked["lr"])

Own.update = update
"""
ALL_BUT_NORMS = """
def update(self, p, group, state):
    if p.ndim > 1:
        p.sub_(p.grad.sign(), alpha=group["lr"])

Own.update = update
"""


@pytest.fixture
def verify(lockstep, tmp_path):
    def run(body="", *, made="Own(list(parameters), options)", also="", **asked):
        path = tmp_path / "mine.py"
        path.write_text(HEAD.replace("MADE", made).replace("ALSO", also) + body)
        return lockstep.verify(f"{path}:wrap", out=tmp_path / "out", profile="quick", world_size=2, **asked)

    return run


def _why(report, code):
    return next(check for check in report.checks if check.code == code).why or ""


def test_a_rule_that_leaves_small_matrices_to_sgd_is_a_rule_of_its_own(verify):
    report = verify(BY_SIZE)
    assert report.verdict == "pass", report.summary
    assert {scenario.own_rule for scenario in report.scenarios} == {None, "Own"}  # the loop's rule where all are small


def test_what_moves_nothing_in_any_situation_shows_nothing_however_few_steps_there_are(verify):
    report = verify(ON_COPIES, also=', "accumulation"')
    assert (report.verdict, "no weight moved" in _why(report, "LS202")) == ("unknown", True), report.summary


@pytest.mark.parametrize("also", ["", ' lossy="float16",'], ids=["exact", "lossy"])
def test_a_division_by_the_number_of_ranks_inside_the_step_is_no_rule(verify, also):
    made = "Around(cls(parameters, **options))"
    report = verify(made=made, also=f'}}, optimizer="own",{also} supports={{')
    failures = next(check for check in report.checks if check.code == "LS201").failures
    assert (report.verdict, failures[0].cause) == ("fail", "averaged_twice"), report.summary


def test_where_nothing_looks_at_the_weights_it_is_unknown(verify):
    made, also = "Around(cls(parameters, **options), 0.7)", '}, optimizer="own", lossy="float16", supports={'
    report = verify(made=made, also=also)
    assert (report.verdict, "step() changes gradients" in _why(report, "LS201")) == ("unknown", True), report.summary
    assert verify(made=made, also='}, optimizer="own", supports={').verdict == "pass"


@pytest.mark.parametrize("decay", [1e-4, 1e-2])
def test_sgd_with_a_decay_that_nobody_asked_for_is_a_rule_of_its_own_however_near(verify, decay):
    report = verify(BUILT_IN_DECAY.replace("DECAY", str(decay)))
    assert report.verdict == "pass", report.summary


@pytest.mark.parametrize(("asked", "verdict"), [("group", "pass"), ("self.param_groups[0]", "fail")])
def test_adamw_with_its_epsilon_elsewhere_is_a_rule_of_its_own_and_may_not_forget_groups(verify, asked, verdict):
    report = verify(ADAMW.replace("ASKED", asked), workloads=["llama"])
    failed = {failure.scenario for check in report.checks for failure in check.failures}
    assert (report.verdict, failed) == (verdict, {"groups_adamw"} if verdict == "fail" else set()), report.summary


def test_a_tensor_that_rests_while_nothing_can_be_compared_is_unknown(verify):
    report = verify(ALL_BUT_NORMS, also='}, optimizer="own", lossy="float16", supports={', workloads=["llama"])
    assert (report.verdict, "norm.weight moved in none of" in _why(report, "LS202")) == ("unknown", True), (
        report.summary
    )


def _is_a_rules(factors, dtypes):
    """Return whether the change of ``w0``'s gradient counts as a rule's, if ``step()`` applies these factors."""
    rank, before = RankRecording(0, notes={"own_rule": "SGD"}), np.linspace(-1.0, 1.0, 7)
    for number, (factor, dtype) in enumerate(zip(factors, dtypes, strict=True)):
        for what, values in ((EARLIER, before), ("gradient", before * factor)):
            name = f"w{number}"
            rank.tensors[what, 0, name] = Tensor(what, 0, name, dtype, values.shape, "", values)
    recording = Recording(SimpleNamespace(world_size=2), [rank], None, {})
    return before_its_own_step(recording, rank, 0, "w0") is not None


@pytest.mark.parametrize(("factor", "a_rule"), [(0.500377, True), (0.5 * (1 + 1e-9), True), (0.5, False), (2.0, False)])
def test_a_rules_own_factor_is_no_world_size_because_it_is_near(factor, a_rule):
    """A trust ratio was once 0.500377, on two ranks."""
    assert _is_a_rules([factor], ["float64"]) == a_rule


@pytest.mark.parametrize(
    ("factors", "dtypes", "a_rule"),
    [
        ((0.502, 0.7), ("bfloat16", "bfloat16"), True),  # within roundings of a half, but the factors differ
        ((0.502, 2.0), ("bfloat16", "float16"), True),
        ((0.5, 0.501), ("bfloat16", "bfloat16"), False),
        ((0.5, 0.7), ("bfloat16", "float32"), False),  # all narrow gradients are halved
        ((0.5, 0.7), ("float32", "float32"), False),
    ],
)
def test_in_narrow_dtypes_a_division_by_the_ranks_is_one_of_all_narrow_gradients(factors, dtypes, a_rule):
    """A trust ratio was once that near to a third for one bfloat16 matrix, in one of some twenty seeds."""
    assert _is_a_rules(factors, dtypes) == a_rule
