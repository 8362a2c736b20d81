"""Methods that a loop must call are found by their names; where none is found, no failure is reported as certain."""

from __future__ import annotations

import pytest

from tests.conftest import ROOT

HEAD = """
import torch, torch.distributed as dist
from ddp_core import Driver

def same_start(model):
    for tensor in [*model.parameters(), *model.buffers()]:
        dist.broadcast(tensor.data, 0)

def mean(model):
    for p in model.parameters():
        used = torch.tensor(int(p.grad is not None))
        dist.all_reduce(used)
        if used:
            p.grad = torch.zeros_like(p) if p.grad is None else p.grad.contiguous()
            p.grad /= DIVISOR()
            dist.all_reduce(p.grad)

DIVISOR = dist.get_world_size

class Base(torch.nn.Module):
    def __init__(self, module):
        super().__init__()
        self.module = module
        same_start(module)

    def forward(self, *inputs):
        for buffer in self.module.buffers():
            dist.broadcast(buffer.data, 0)
        return self.module(*inputs)
"""

ALONE = """
class wrap(Base):
    def backward(self, loss):
        loss.backward()
        mean(self.module)
"""

OTHERWISE = """
class wrap(Base):
    def all_reduce_grads(self):
        mean(self.module)
"""

# Gradients that the strategy has summed must not be summed again by the loop.
BY_ITSELF = """
class wrap(Base):
    def __init__(self, module):
        super().__init__(module)
        self.queued = False
        for p in module.parameters():
            p.register_hook(self.queue)

    def queue(self, gradient):
        if not self.queued:
            self.queued = True
            torch.autograd.Variable._execution_engine.queue_callback(self.end)

    def end(self):
        self.queued = False
        self.reduce_grads()

    def reduce_grads(self):
        mean(self.module)
"""

RETURNS_NOTHING = """
class wrap(torch.nn.Module):
    def __init__(self, module):
        super().__init__()
        self.module = module
        for p in module.parameters():
            dist.broadcast(p.data, 0)

    def forward(self, *inputs):
        self.module(*inputs)
"""

STEPS_WHAT_IT_IS_HANDED = """
class wrap(Base):
    def step(self, optimizer):
        mean(self.module)
        optimizer.step()
"""

NO_SUCH_NAME = """
class wrap(Base):
    def my_grad_exchange(self):
        mean(self.module)
"""

BESIDE_THE_MODEL = """
def average_gradients(model):
    mean(model)
"""

A_SWITCH = """
class wrap(Base):
    def sync_gradients(self, on):
        self.on = on

    def backward(self, loss):
        loss.backward()
        mean(self.module)
"""

OF_ITS_OWN = """
class wrap(Driver):
    def prepare(self, model):
        same_start(model)
        return model

    def before_step(self):
        mean(self.model)
"""


ASKS_FOR_MORE = """
class wrap(Base):
    def __init__(self, module, rank, bucket_size_mb, *, process_group, broadcast=True):
        super().__init__(module)
        assert (rank, process_group, broadcast) == (dist.get_rank(), dist.group.WORLD, True)
        assert 0 < bucket_size_mb <= 25

    def sync_gradients(self):
        mean(self.module)
"""

ASKS_FOR_TOO_MUCH = """
def wrap(model, rank, scheduler):
    return Base(model)
"""

HOOKS = """
def mean_hook(state, bucket):
    work = dist.all_reduce(bucket.buffer().div_(dist.get_world_size()), async_op=True)
    return work.get_future().then(lambda done: done.value()[0])

def sum_hook(state, bucket):
    return dist.all_reduce(bucket.buffer(), async_op=True).get_future().then(lambda done: done.value()[0])

class Sharded(torch.optim.SGD):
    pass
"""

SOMEHOW = """
def meet(model):
    mean(model)
"""


@pytest.fixture
def verify(lockstep, tmp_path):
    def run(body, attribute="wrap"):
        path = tmp_path / "mine.py"
        path.write_text(HEAD + body)
        return lockstep.verify(f"{path}:{attribute}", world_size=2, profile="quick")

    return run


def checks(report, verdict):
    return {check.code for check in report.checks if check.verdict == verdict}


@pytest.mark.parametrize(
    ("body", "style"),
    [
        (ALONE, "backward"),
        (OTHERWISE, "explicit"),
        (BY_ITSELF, "explicit"),
        (A_SWITCH, "backward"),
        (OF_ITS_OWN, "native"),
    ],
    ids=["alone", "otherwise", "by_itself", "a_switch", "of_its_own"],
)
def test_methods_are_called_by_whoever_has_to(verify, body, style):
    report = verify(body)
    report.assert_pass()
    assert {scenario.driver for scenario in report.scenarios} == {style}


def test_a_function_beside_the_model_is_a_strategy(verify):
    report = verify(BESIDE_THE_MODEL, "average_gradients")
    assert report.verdict == "pass", report.summary
    assert {scenario.driver for scenario in report.scenarios if scenario.driver} == {"function"}
    (start,) = [check for check in report.checks if check.code == "LS001"]
    assert start.verdict == "pass"  # where ranks start equal; elsewhere a function cannot broadcast


@pytest.mark.parametrize(("name", "failed"), [("mean_hook", set()), ("sum_hook", {"LS201"})])
def test_a_communication_hook_is_a_strategy(verify, name, failed):
    report = verify(HOOKS, name)
    assert checks(report, "fail") == failed
    assert {scenario.driver for scenario in report.scenarios if scenario.driver} == {"comm_hook"}


def test_torchs_decorator_is_no_contract(lockstep):
    report = lockstep.verify("torch.distributed._composable.replicate:replicate", world_size=2, profile="quick")
    assert checks(report, "fail") == {"LS002"}  # it leaves buffers alone
    assert "LS201" in checks(report, "pass")


def test_a_function_of_any_name_is_what_it_is_said_to_be(lockstep, tmp_path):
    path = tmp_path / "mine.py"
    path.write_text(HEAD + SOMEHOW)
    report = lockstep.verify(f"{path}:meet", world_size=2, profile="quick", driver="function")
    report.assert_pass()
    assert {scenario.driver for scenario in report.scenarios if scenario.driver} == {"function"}


def test_a_function_that_wants_gradients_of_a_bare_model_is_told_how_it_is_called(lockstep, tmp_path):
    path = tmp_path / "mine.py"
    path.write_text("def meet(model):\n    return [p.grad.mul_(1) for p in model.parameters()]\n")
    report = lockstep.verify(f"{path}:meet", world_size=2, profile="quick")
    assert report.verdict == "unknown"
    assert "has no attribute 'mul_': no parameter has a gradient yet" in report.summary
    assert "before each step: --driver function" in report.summary
    assert "return [p.grad.mul_(1)" in report.scenarios[0].ranks[0].detail, "the line that raised is shown"


def test_what_trained_nothing_says_so_beside_what_was_found(lockstep, tmp_path):
    path = tmp_path / "mine.py"
    path.write_text(HEAD + RETURNS_NOTHING)
    report = lockstep.verify(f"{path}:wrap", world_size=2, checks=("LS002",))
    assert report.verdict == "fail"
    assert "(LS002)" in report.summary
    assert "No scenario came to its end: " in report.summary
    assert "the wrapped model returned a NoneType" in report.summary


def test_where_an_optimizer_goes_is_said(verify):
    report = verify(HOOKS, "Sharded")
    assert report.verdict == "unknown"
    assert "wrap_optimizer(cls, parameters, **options)" in report.summary


def test_the_example_is_right(lockstep):
    report = lockstep.verify(f"{ROOT / 'examples' / 'my_driver.py'}:MyDriver", world_size=2)
    report.assert_pass()


def test_arguments_whose_names_say_what_they_are(verify):
    verify(ASKS_FOR_MORE).assert_pass()


def test_other_arguments_are_asked_for(verify):
    report = verify(ASKS_FOR_TOO_MUCH)
    assert report.verdict == "unknown"
    assert "wrap() wants scheduler besides the model: give it by --option scheduler=VALUE" in report.summary


def test_what_no_loop_can_drive_is_told_after_one_scenario(verify):
    report = verify("class wrap:\n    def __init__(self, model):\n        pass\n")
    assert report.verdict == "unknown"
    assert "write a ddp_core.Driver that says what the loop does (docs/driving.md)" in report.summary
    assert len(report.scenarios) == 1


def test_a_sum_is_found_in_each_style(verify):
    for body, attribute in ((ALONE, "wrap"), (OTHERWISE, "wrap"), (BESIDE_THE_MODEL, "average_gradients")):
        report = verify(body + "\nDIVISOR = lambda: 1\n", attribute)
        assert "LS201" in checks(report, "fail"), report.summary


def test_a_method_of_no_known_name_is_asked_about(verify):
    report = verify(NO_SUCH_NAME)
    (gradients,) = [check for check in report.checks if check.code == "LS201"]
    for failure in gradients.failures:
        assert failure.cause == "not_synchronised"
        assert failure.confidence <= 0.5
    assert "my_grad_exchange()" in report.summary
    assert "Driver" in gradients.failures[0].hint


def test_a_step_that_is_handed_the_optimizer_is_called_with_it(lockstep, tmp_path):
    path = tmp_path / "mine.py"
    path.write_text(HEAD + STEPS_WHAT_IT_IS_HANDED)
    report = lockstep.verify(f"{path}:wrap", world_size=2, profile="quick")
    report.assert_pass()
    assert {scenario.driver for scenario in report.scenarios if scenario.driver} == {"step_with"}


REDUCES_IN_STEP = """
CLIPS = True

class wrap(Base):
    from ddp_core import Contract
    contract = Contract(disclaims={"sparse_gradients", "unused_parameters"})

    def wrap_optimizer(self, cls, parameters, **options):
        model = self.module

        class Reducing(cls):
            done = False

            def reduce(self):
                if not self.done:
                    mean(model)
                self.done = True

            def step(self):
                self.reduce()
                self.done = False
                super().step()

        def clip_grad_norm_(self, max_norm):
            self.reduce()
            return torch.nn.utils.clip_grad_norm_(model.parameters(), max_norm)

        if CLIPS:
            Reducing.clip_grad_norm_ = clip_grad_norm_
        return Reducing(parameters, **options)
"""


@pytest.mark.parametrize("clips", [True, False])
def test_an_optimizer_that_is_made_clips_by_itself_or_nobody_does(lockstep, tmp_path, clips):
    """torch's clipping would come before the optimizer reduces gradients in ``step()``."""
    path = tmp_path / "mine.py"
    path.write_text(HEAD + REDUCES_IN_STEP.replace("CLIPS = True", f"CLIPS = {clips}"))
    report = lockstep.verify(str(path), world_size=2, profile="standard", workloads=["llama"])
    report.assert_pass()
    why = {scenario.name: scenario.not_claimed or "" for scenario in report.scenarios}
    assert ("clip_grad_norm_() of its own" in why["clipping"]) != clips
