"""Optimizers of a strategy's own where a condition meets them: memory that is not in rows, a third group of parameters,
a step inside the backward, a residue of what was declared to be lost; and two backwards that use other parameters.

Special here: as in ``test_conditions_that_meet``: each is tried with and without the mistake, in the one situation that
has both conditions.
"""

from __future__ import annotations

import pytest
import torch

from tests.verifier.test_conditions_meet_again import HEAD
from verifier import catalogue
from verifier.request import Builtin, Request
from verifier.run.grouping import grouped
from verifier.scenario import NUM_GROUPS
from verifier.scheduling import hides_others
from verifier.situation import plan

FLAT = """
class Flat(torch.optim.AdamW):
    @torch.no_grad()
    def step(self, closure=None):
        for group in self.param_groups:
            b1, b2 = group["betas"]
            for p in group["params"]:
                if p.grad is None:
                    continue
                w, g = (p, p.grad) if RIGHT else (p.reshape(-1), p.grad.reshape(-1))  # a copy of what is transposed
                state = self.state[p]
                if not state:
                    state.update(step=0, m=torch.zeros_like(g), v=torch.zeros_like(g))
                state["step"] += 1
                w.mul_(1 - group["lr"] * group["weight_decay"])
                state["m"].lerp_(g, 1 - b1)
                state["v"].mul_(b2).addcmul_(g, g, value=1 - b2)
                spread = (state["v"] / (1 - b2 ** state["step"])).sqrt() + group["eps"]
                w.addcdiv_(state["m"], spread, value=-group["lr"] / (1 - b1 ** state["step"]))
def wrap_optimizer(cls, parameters, **options):
    return Flat(parameters, **options) if cls is torch.optim.AdamW else cls(parameters, **options)
class wrap(Replica):
    pass
"""

TWO_GROUPS = """
def wrap_optimizer(cls, parameters, **options):
    made = cls(parameters, **options)
    if not RIGHT:
        for group in made.param_groups[2:]:
            made.param_groups[1]["params"] += group["params"]
        del made.param_groups[2:]
    return made
class wrap(Replica):
    pass
"""

FIRST_BACKWARD_FORGOTTEN = """
from torch.autograd import Variable
class wrap(Replica):
    sync_gradients = None
    def __init__(self, module):
        super().__init__(module)
        self.fired, self.queued = set(), False
        for p in module.parameters():
            p.register_post_accumulate_grad_hook(self.ready)
    def ready(self, p):
        self.fired.add(p)
        if not self.queued:
            self.queued = True
            Variable._execution_engine.queue_callback(self.finish)
    def finish(self):
        for p in self.module.parameters():
            used = torch.tensor(int(p in self.fired))
            dist.all_reduce(used)
            if used:
                has = p.grad is not None if RIGHT else p in self.fired
                gradient = (p.grad if has else torch.zeros_like(p)) / dist.get_world_size()
                dist.all_reduce(gradient)
                p.grad = gradient
        self.fired, self.queued = set(), False
"""

STEPS_IN_THE_BACKWARD = """
from torch.autograd import Variable
CONTRACT = Contract(disclaims={"sparse_gradients", "clipping", "dropped_batches"})
class wrap(Replica):
    sync_gradients = None
    def __init__(self, module):
        super().__init__(module)
        self.inner, self.queued = None, False
        for p in module.parameters():
            p.register_post_accumulate_grad_hook(self.ready)
    def forward(self, *inputs):
        for buffer in self.module.buffers():
            dist.broadcast(buffer, src=0)
        return self.module(*inputs)
    def wrap_optimizer(self, cls, parameters, **options):
        class Outside(cls):
            def step(self, closure=None):
                pass
        self.inner = cls(parameters, **options)
        return Outside(self.inner.param_groups, **options)
    def ready(self, p):
        if not self.queued:
            self.queued = True
            Variable._execution_engine.queue_callback(self.finish)
    def finish(self):
        self.queued = False
        if RIGHT:
            mean_of([*self.module.parameters()])
        self.inner.step()
        self.inner.zero_grad()
"""

FEEDBACK = """
CONTRACT = Contract(lossy="bfloat16", sync_buffers=False, disclaims={"sparse_gradients"})
class wrap(Replica):
    def sync_gradients(self):
        parameters = [*self.module.parameters()]
        used = torch.tensor([int(p.grad is not None) for p in parameters])
        dist.all_reduce(used)
        self.__dict__.setdefault("lost", {})
        self.__dict__.setdefault("last", {})
        for p, number in zip(parameters, used.tolist()):
            if number:
                whole = (torch.zeros_like(p) if p.grad is None else p.grad) + self.lost.get(p, 0.0)
                wire = whole.bfloat16().to(whole.dtype)
                self.lost[p] = whole - wire
                dist.all_reduce(wire)
                mean = wire / dist.get_world_size()
                p.grad = mean if RIGHT else self.last.get(p, mean)  # the step before's
                self.last[p] = mean
"""


@pytest.mark.parametrize("right", [True, False])
@pytest.mark.parametrize(
    ("body", "situation", "code"),
    [
        pytest.param(FLAT, "strided_adamw", "LS202", id="adamw_on_flat_copies"),
        pytest.param(TWO_GROUPS, "groups", "LS202", id="two_groups_of_three"),
        pytest.param(FIRST_BACKWARD_FORGOTTEN, "two_backwards_unused", "LS201", id="first_backward_forgotten"),
        pytest.param(STEPS_IN_THE_BACKWARD, "images", "LS101", id="steps_in_the_backward"),
        pytest.param(FEEDBACK, "unused_adamw", "LS201", id="feedback"),
    ],
)
def test_where_they_meet(lockstep, tmp_path, only, body, situation, code, right):
    only(situation)
    path = tmp_path / "mine.py"
    path.write_text(f"{HEAD}RIGHT = {right}\n{body}")
    report = lockstep.verify(str(path), world_size=2, profile="standard")  # chosen by its text where necessary
    check = next(check for check in report.checks if check.code == code)
    assert check.verdict == report.verdict == ("pass" if right else "fail"), (report.summary, check)


def test_all_groups_are_asked_for_and_rescheduled():
    """A model without one of the groups would leave the change of options out, on all ranks and without a word."""
    request = Request(strategy=Builtin(name="bucketed"), world_size=2, profile="thorough")
    asked = [scenario for scenario in plan(request) if scenario.new_options_after is not None]
    assert asked
    for scenario in asked:
        model = catalogue.WORKLOADS.load(scenario.workload).WORKLOAD(scenario).model(None)
        groups = grouped(scenario, list(model.named_parameters()))
        assert len(groups) == NUM_GROUPS
        assert not hides_others(torch.optim.AdamW(groups))


def test_a_declared_sum_that_is_summed_again_is_told_as_that(lockstep, tmp_path, only):
    only("plain")
    path = tmp_path / "mine.py"
    path.write_text(
        f'{HEAD}CONTRACT = Contract(average="sum", sync_buffers=False)\nclass wrap(Replica):\n'
        "    def sync_gradients(self):\n        for p in self.module.parameters():\n"
        "            dist.all_reduce(p.grad)\n            dist.all_reduce(p.grad)\n"
    )
    report = lockstep.verify(str(path), world_size=2)
    failure = next(check for check in report.checks if check.code == "LS201").failures[0]
    assert "what is summed already is summed again" in failure.explanation
    assert "declare" not in (failure.hint or "")
