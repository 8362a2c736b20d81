"""Recognition of how a foreign function or class is to be called, from its arguments."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from ddp_core.arguments import names_an_optimizer
from ddp_core.driver import Driver
from ddp_core.drivers.distributed_optimizer import DistributedOptimizerDriver, takes_a_class
from ddp_core.drivers.engine import EngineDriver
from ddp_core.drivers.function import FunctionDriver, is_such_a_name
from ddp_core.methods import NotDrivable, what_it_asks_for
from ddp_core.recognition import recognise


class ByDefault:
    def __init__(self, params, which=torch.optim.SGD, **options):
        raise NotImplementedError


def by_name(parameters, base_optimizer):
    raise NotImplementedError


def wrap(model, optimizer):
    raise NotImplementedError


@pytest.mark.parametrize(("target", "takes"), [(ByDefault, True), (by_name, True), (wrap, False), (len, False)])
def test_an_optimizer_that_is_built_from_a_class(target, takes):
    assert takes_a_class(target) is takes


@pytest.mark.parametrize("name", ["optimizer", "opt", "actual_optimizer", "torch_optimizer"])
def test_names_of_optimizers(name):
    assert names_an_optimizer(name)


@pytest.mark.parametrize("name", [None, "model", "optimizer_class", "optimizer_cls", "options"])
def test_names_of_other_things(name):
    assert not names_an_optimizer(name)


def test_the_one_argument_is_what_its_name_says():
    model, optimizer = nn.Linear(2, 2), object()
    assert [name for name, _ in what_it_asks_for(lambda named_parameters: None, model, optimizer)] == ["weight", "bias"]
    assert what_it_asks_for(lambda params: None, model, optimizer) == list(model.parameters())
    assert what_it_asks_for(lambda opt: None, model, optimizer) is optimizer
    assert what_it_asks_for(lambda net: None, model, optimizer) is model


class Apexs:
    def reduce(self):
        raise NotImplementedError


class Runs(Apexs):
    def __call__(self, x):
        raise NotImplementedError


def test_a_verb_alone_is_a_loops_to_call_where_nothing_else_can_be():
    assert recognise(Apexs()).style == "explicit"
    assert recognise(Runs()).style == "native"  # a wrapper may call its reduce() itself


class Clips:
    norms: tuple[float, ...] = ()

    def clip_grad_norm(self, max_norm, norm_type=2.0):
        self.norms = (*self.norms, max_norm)
        return 0.5


def test_an_optimizer_of_its_own_may_clip():
    model = nn.Linear(1, 1)
    driver = DistributedOptimizerDriver(lambda optimizer: Clips(), model)
    assert not driver.can_clip
    made = driver.make_optimizer(torch.optim.SGD, list(model.parameters()), lr=1.0)
    assert (driver.can_clip, driver.clip([], 2.0), made.norms) == (True, 0.5, (2.0,))


class Scales:
    def backward(self, loss):
        (2 * loss).backward()


def test_an_optimizer_of_its_own_may_have_the_backward():
    model = nn.Linear(1, 1)
    driver = DistributedOptimizerDriver(lambda optimizer: Scales(), model)
    driver.make_optimizer(torch.optim.SGD, list(model.parameters()), lr=1.0)
    driver.backward(model(torch.ones(1, 1)).sum())
    assert model.bias.grad.tolist() == [2.0]


def test_the_rest_is_clipped_as_torch_does_it():
    parameter = nn.Parameter(torch.zeros(2))
    parameter.grad = torch.tensor([3.0, 4.0])
    driver = Driver(nn.Identity(), nn.Identity())
    assert float(driver.clip([parameter], 1.0)) == 5.0
    assert float(parameter.grad.norm()) == pytest.approx(1.0, rel=1e-5)


def needs_a_rate(params, optimizer_cls, lr):
    return optimizer_cls(params, lr=lr)


def test_what_the_loop_asks_of_an_optimizer_is_given():
    model = nn.Linear(1, 1)
    driver = DistributedOptimizerDriver(needs_a_rate, model)
    assert driver.make_optimizer(torch.optim.SGD, list(model.parameters()), lr=0.25).defaults["lr"] == 0.25


@pytest.mark.parametrize("returned", [None, "an optimizer of its own"])
def test_who_wraps_an_optimizer_that_is_made_is_handed_one(returned):
    model, handed = nn.Linear(1, 1), []
    model.wrap_optimizer = lambda optimizer: handed.append(optimizer) or returned
    made = Driver(model, model).make_optimizer(torch.optim.SGD, list(model.parameters()), lr=0.25)
    assert handed[0].defaults["lr"] == 0.25
    assert made == returned or made is handed[0]


class OptimizerBeside:
    """Takes the step itself after the loop has synchronised, and is no ``torch.optim.Optimizer``."""

    def __init__(self):
        self.calls = []

    def zero_grad(self):
        self.calls.append("zero_grad")

    def sync_gradients(self):
        self.calls.append("sync_gradients")

    def step(self):
        self.calls.append("step")


def test_what_synchronises_and_steps_beside_a_model_is_asked_for_both():
    beside, model = OptimizerBeside(), nn.Linear(1, 1)
    kind = recognise(beside)
    assert kind.style == "step"
    driver = kind(beside, model)
    optimizer = driver.make_optimizer(torch.optim.SGD, list(model.parameters()), lr=0.1)
    driver.zero_grad(optimizer)
    driver.before_step()
    driver.step(optimizer)
    assert beside.calls == ["zero_grad", "sync_gradients", "step"]


class HookedReducer:
    def reduce_grad(self, grad):
        raise NotImplementedError

    def finalize_backward(self):
        raise NotImplementedError


def test_what_is_called_for_each_gradient_is_no_loops_to_call():
    assert recognise(HookedReducer()).style == "finish"


def test_what_cannot_be_driven_is_told_with_what_it_has():
    class Bucketer:
        def sync_all(self):
            raise NotImplementedError

    with pytest.raises(NotDrivable, match=r"what it has is sync_all\(\)"):
        recognise(Bucketer())


def average_gradients(params, is_distributed):
    raise NotImplementedError


def all_reduce_grads(model, size):
    raise NotImplementedError


@pytest.mark.parametrize(
    ("name", "is_one"),
    [
        ("mpi_avg_grads", True),
        ("synchronize_optimizer_gradients", True),
        ("averageGradients", True),
        ("all_reduce_mean_gradients", True),
        ("aggregate_grads_across_workers", True),
        ("allreduce_params", True),
        ("reduce_parameters", True),
        ("reduce_gradients_in_buckets", True),
        ("gradients", False),
        ("average_parameters", False),
        ("register_reduce_gradients", False),
        ("average_gradients_hook", False),
    ],
)
def test_a_function_is_told_by_the_words_of_its_name(name, is_one):
    assert is_such_a_name(name) is is_one


def reduce_gradients_in_buckets(params, world_size, bucket_mb):
    raise NotImplementedError


def test_a_functions_other_arguments_are_options_or_known():
    assert FunctionDriver.fits(reduce_gradients_in_buckets)
    assert not FunctionDriver.fits(average_gradients)
    assert FunctionDriver.fits(average_gradients, is_distributed=True)
    assert FunctionDriver.fits(all_reduce_grads), "size is torch's tutorial's name for the number of ranks"


def test_one_model_of_several_is_a_list():
    model = nn.Linear(1, 1)

    def broadcast(modules):
        raise NotImplementedError

    assert what_it_asks_for(broadcast, model, None) == [model]


def test_an_engine_is_asked_for_zeros_where_it_takes_that():
    class Engine:
        optimizer, asked = None, None

        def backward(self, loss):
            raise NotImplementedError

        def step(self):
            raise NotImplementedError

        def zero_grad(self, set_to_none=True):
            self.asked = set_to_none

    engine = Engine()
    EngineDriver(engine, nn.Linear(1, 1)).zero_grad(None, set_to_none=False)
    assert engine.asked is False


def with_methods(*names, base=object):
    return type("Waiting", (base,), {name: lambda self: None for name in names})()


@pytest.mark.parametrize(
    "name",
    ["wait_all_communications", "wait_on_queue", "finish_reduction", "finalize_grad_sync", "wait_for_all_reduces"],
)
def test_a_name_of_finishing_that_is_guessed(name):
    assert recognise(with_methods(name, base=nn.Module)).style == "finish"
    assert recognise(with_methods(name)).style == "finish"


@pytest.mark.parametrize("name", ["finish", "wait", "drain"])
def test_a_verb_alone_is_enough_only_for_what_cannot_be_called(name):
    assert recognise(with_methods(name)).style == "finish"
    assert recognise(with_methods(name, base=nn.Module)).style == "native"


def test_what_may_be_for_the_end_of_all_training_is_not_called_in_each_step():
    with pytest.raises(NotDrivable, match=r"what it has is finalize\(\)"):
        recognise(with_methods("finalize"))


@pytest.mark.parametrize(
    ("names", "style"),
    [
        (("finish_training",), "native"),
        (("wait_for_workers",), "native"),
        (("wait_all_handles", "finish_bucket"), "native"),
        (("wait_all_handles", "sync_gradients"), "explicit"),
        (("wait_all_handles", "step", "backward"), "engine"),
    ],
)
def test_no_guess_is_made_of_other_words_of_several_or_beside_another_style(names, style):
    assert recognise(with_methods(*names, base=nn.Module)).style == style
