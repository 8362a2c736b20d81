"""Mistakes that only one situation shows, each compared with the same strategy without the mistake.

Special here: only that situation is run; whether all others pass the mistake is not tested.
"""

from __future__ import annotations

import pytest

HEAD = """
import torch, torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from ddp_core import Contract
"""

# Gradients are views of one flat buffer. If only the forward makes them, a later zero_grad() removes them.
VIEWS = """
class Flat(nn.Module):
    contract = Contract(sync_buffers=False, disclaims={"unused_parameters", "odd_parameters"})
    def __init__(self, module):
        super().__init__()
        self.module = module
        for tensor in module.state_dict().values():
            dist.broadcast(tensor, src=0)
        self.trained = [p for p in module.parameters() if p.requires_grad]
        self.flat = torch.zeros(sum(p.numel() for p in self.trained), dtype=self.trained[0].dtype)
        parts = self.flat.split([p.numel() for p in self.trained])
        self.views = [part.view(p.shape) for part, p in zip(parts, self.trained)]
    def forward(self, *inputs):
        for parameter, view in zip(self.trained, self.views):
            if parameter.grad is not view:
                parameter.grad = view.zero_()
        return self.module(*inputs)
    def finish_gradient_synchronization(self):
        for parameter, view in zip(self.trained, self.views):
            if RIGHT and parameter.grad is not view:
                parameter.grad = view.copy_(parameter.grad)
        dist.all_reduce(self.flat)
        self.flat /= dist.get_world_size()
"""

NORMS = """
def average_gradients(model):
    norms = [m for m in model.modules() if isinstance(m, nn.BatchNorm1d)]
    passed_over = set() if RIGHT else {p for norm in norms for p in norm.parameters()}
    for parameter in model.parameters():
        if parameter not in passed_over:
            dist.all_reduce(parameter.grad)
            parameter.grad /= dist.get_world_size()
"""

ROOT = """
def wrap(model, process_group=None):
    root = dist.get_global_rank(process_group, 0) if RIGHT and process_group else 0
    for tensor in model.state_dict().values():
        dist.broadcast(tensor, src=root, group=process_group)
    return DistributedDataParallel(model, process_group=process_group, init_sync=False)
"""

NAN_TO_ZERO = """
def hook(state, bucket):
    gradients = bucket.buffer()
    if not RIGHT:
        gradients[gradients.isnan()] = 0
    work = dist.all_reduce(gradients.div_(dist.get_world_size()), async_op=True)
    return work.get_future().then(lambda future: future.value()[0])
def wrap(model):
    wrapped = DistributedDataParallel(model)
    wrapped.register_comm_hook(None, hook)
    return wrapped
"""
SUMS = 'CONTRACT = Contract(average="sum", disclaims={"two_backwards"})\n'
NAN_IN_A_SUM = NAN_TO_ZERO.replace("dist.get_world_size()", "1") + SUMS

BY_ITS_OWN_LOSS = """
class wrap(DistributedDataParallel):
    def backward(self, loss):
        skips = loss.isnan().float()
        if RIGHT:
            dist.all_reduce(skips, dist.ReduceOp.MAX)
        self.skips = bool(skips)
        loss.backward()
    def step(self):
        if not self.skips:
            self.optimizer.step()
"""

BUFFERS = """
class wrap(DistributedDataParallel):
    def __init__(self, model, process_group=None):
        super().__init__(model, process_group=process_group)
    def forward(self, *inputs):
        group = self.process_group if RIGHT else None
        for buffer in self.module.buffers():
            if self.training and buffer.is_floating_point():
                dist.all_reduce(buffer, group=group)
                buffer /= dist.get_world_size(group)
        return super().forward(*inputs)
"""

# Parameters are assigned to owners as they come. If only the first ones are broadcast, later ones stay on their owners.
OWNERS = """
class ShardedOptimizer(torch.optim.Optimizer):
    contract = Contract(sharded=True, disclaims={"state_dict", "sparse_gradients"})
    def __init__(self, params, optimizer_cls, **options):
        self.owners, self.inner, self.cls, self.options = {}, None, optimizer_cls, options
        super().__init__(params, options)
        self.at_first = dict(self.owners)
    def add_param_group(self, group):
        super().add_param_group(group)
        mine = []
        for parameter in self.param_groups[-1]["params"]:
            self.owners[parameter] = len(self.owners) % dist.get_world_size()
            if self.owners[parameter] == dist.get_rank():
                mine.append(parameter)
        if mine and self.inner is None:
            self.inner = self.cls(mine, **self.options)
        elif mine:
            self.inner.add_param_group({**self.param_groups[-1], "params": mine})
    def step(self, closure=None):
        self.inner.step()
        for parameter, owner in (self.owners if RIGHT else self.at_first).items():
            dist.broadcast(parameter.data, owner)
"""

# The loop's own optimizer is passed with the model; parameter groups are added later to the optimizer returned.
GIVEN = """
class Outer(torch.optim.Optimizer):
    def __init__(self, inner):
        self.inner = inner
        self.param_groups, self.state, self.defaults = inner.param_groups, inner.state, inner.defaults
    def add_param_group(self, group):
        if RIGHT:
            self.inner.add_param_group(group)
    def step(self, closure=None):
        self.inner.step()
    def zero_grad(self, set_to_none=True):
        self.inner.zero_grad(set_to_none)
def wrap(model, optimizer):
    return DistributedDataParallel(model), Outer(optimizer)
"""

DETACHED = """
class wrap(DistributedDataParallel):
    def forward(self, *inputs):
        return super().forward(*(inputs if RIGHT else [value.detach() for value in inputs]))
"""

# A named argument that is no tensor (a flag, a scale) is an input, too.
TENSORS_BY_NAME = """
class wrap(DistributedDataParallel):
    def forward(self, *inputs, **named):
        kept = {name: value for name, value in named.items() if RIGHT or isinstance(value, torch.Tensor)}
        return super().forward(*inputs, **kept)
"""

# Gradients are reduced once one reaches the output, if a tensor is found in the output.
BY_THE_OUTPUT = """
import dataclasses
class wrap(nn.Module):
    contract = Contract(sync_buffers=False, disclaims={"unused_parameters", "sparse_gradients"})
    def __init__(self, module):
        super().__init__()
        self.module, self.watches = module, False
        for tensor in module.state_dict().values():
            dist.broadcast(tensor, src=0)
    def forward(self, *inputs, **named):
        output = self.module(*inputs, **named)
        self.watches = bool(tensors(output))
        return output
    def finish_gradient_synchronization(self):
        for parameter in self.module.parameters() if self.watches else ():
            dist.all_reduce(parameter.grad)
            parameter.grad /= dist.get_world_size()
def tensors(output):
    if isinstance(output, torch.Tensor):
        return [output]
    if RIGHT and dataclasses.is_dataclass(output):
        output = vars(output)
    values = output.values() if isinstance(output, dict) else output if isinstance(output, (list, tuple)) else []
    return [tensor for value in values for tensor in tensors(value)]
"""

NORMS_SET_GOING = """
class wrap(DistributedDataParallel):
    def forward(self, *inputs):
        if not RIGHT:
            self.module.train(self.training)
        return super().forward(*inputs)
"""

NORMS_PUT_ANEW = """
def wrap(model):
    for name, child in model.named_children():
        if isinstance(child, nn.BatchNorm1d):
            norm = nn.BatchNorm1d(child.num_features, child.eps, child.momentum)
            norm.load_state_dict(child.state_dict() if RIGHT else dict(child.named_parameters()), strict=False)
            setattr(model, name, norm)
    return DistributedDataParallel(model)
"""

RESET = """
def wrap(model):
    with torch.random.fork_rng():
        torch.manual_seed(0)
        for module in model.modules() if not RIGHT else ():
            if hasattr(module, "reset_parameters"):
                module.reset_parameters()
    return DistributedDataParallel(model)
"""

# Each rank continues from its own random state; from rank 0's state all would draw the same numbers.
RANDOM_STATE = """
class wrap(DistributedDataParallel):
    def state_dict(self):
        states = [None] * dist.get_world_size()
        dist.all_gather_object(states, torch.get_rng_state())
        return {**super().state_dict(), "rng": states}
    def load_state_dict(self, saved):
        states = saved.pop("rng")
        torch.set_rng_state(states[dist.get_rank() if RIGHT else 0])
        super().load_state_dict(saved)
"""

# Averaging weights after a step equals averaging gradients before it only under plain SGD.
LOCAL_STEPS = """
def wrap(model):
    model.wrap_optimizer = wrap_optimizer
    return model
def wrap_optimizer(cls, parameters, **options):
    class Averaging(cls):
        def step(self, closure=None):
            given = [parameter for group in self.param_groups for parameter in group["params"]]
            average(parameter.grad if RIGHT else torch.zeros(()) for parameter in given)
            super().step(closure)
            average(parameter.data for parameter in given)
    return Averaging(parameters, **options)
def average(tensors):
    for tensor in tensors:
        dist.all_reduce(tensor)
        tensor /= dist.get_world_size()
"""

# A rank that did not use a parameter counts as a zero in the mean; it is not left out.
BY_THOSE_THAT_HAVE_ONE = """
def average_gradients(model):
    for parameter in model.parameters():
        used = torch.tensor(float(parameter.grad is not None))
        dist.all_reduce(used)
        mine = torch.zeros_like(parameter) if parameter.grad is None else parameter.grad
        dist.all_reduce(mine)
        parameter.grad = mine / (dist.get_world_size() if RIGHT else used) if used else None
"""


@pytest.mark.parametrize("right", [True, False])
@pytest.mark.parametrize(
    ("body", "name", "situation", "code", "cause"),
    [
        pytest.param(VIEWS, "Flat", "zero_grad_between", "LS201", "not_synchronised", id="views_made_in_forward"),
        pytest.param(NORMS, "average_gradients", "norms", "LS201", "not_synchronised", id="norms_passed_over"),
        pytest.param(ROOT, "wrap", "subgroup", "LS201", "root_of_the_job", id="group_by_its_first"),
        pytest.param(NAN_TO_ZERO, "wrap", "no_number", "LS202", "infinity_hidden", id="nan_to_zero"),
        pytest.param(NAN_IN_A_SUM, "wrap", "no_number", "LS202", "infinity_hidden", id="nan_in_a_sum"),
        pytest.param(BY_ITS_OWN_LOSS, "wrap", "loss_no_number", "LS101", "replicas_diverged", id="skipped_by_its_loss"),
        pytest.param(BUFFERS, "wrap", "subgroup_buffers", "LS102", "reduced_over_the_job", id="buffers_of_the_job"),
        pytest.param(OWNERS, "ShardedOptimizer", "joined_later", "LS101", "replicas_diverged", id="joined_later"),
        pytest.param(GIVEN, "wrap", "joined_later", "LS202", "not_stepped", id="given_and_joined_later"),
        pytest.param(TENSORS_BY_NAME, "wrap", "named_inputs", "LS201", None, id="tensors_by_name"),
        pytest.param(BY_THE_OUTPUT, "wrap", "dataclass_outputs", "LS201", "not_synchronised", id="by_the_output"),
        pytest.param(NORMS_SET_GOING, "wrap", "norms_at_rest", "LS201", None, id="norms_set_going"),
        pytest.param(NORMS_PUT_ANEW, "wrap", "buffers", "LS102", "statistics_misstated", id="norms_put_anew"),
        pytest.param(RANDOM_STATE, "wrap", "resume", "LS801", "same_random_numbers", id="one_ranks_random_state"),
        pytest.param(LOCAL_STEPS, "wrap", "adamw", "LS201", "weights_made_alike", id="local_steps"),
        pytest.param(RESET, "wrap", "different_start", "LS001", "start_replaced", id="start_replaced"),
    ],
)
def test_one_situation_tells(lockstep, tmp_path, only, body, name, situation, code, cause, right):
    check = _judged(lockstep, tmp_path, only, body, name, situation, code, right)
    assert check.verdict == ("pass" if right else "fail"), check
    assert {failure.cause for failure in check.failures} == (set() if right else {cause})


def test_an_input_that_is_cut_off_is_told(lockstep, tmp_path, only):
    given = DETACHED, "wrap", "input_gradients", "LS201"
    right = _judged(lockstep, tmp_path, only, *given, True)
    assert right.verdict == "pass", "the gradients of its parameters are compared there, too"
    failures = _judged(lockstep, tmp_path, only, *given, False).failures
    assert {failure.cause for failure in failures} == {"input_detached"}


STATIC = "def wrap(model):\n    return DistributedDataParallel(model, static_graph=True)\n"


def test_a_static_graph_is_not_asked_for_dataclasses(lockstep, tmp_path, only):
    check = _judged(lockstep, tmp_path, only, STATIC, "wrap", "dataclass_outputs", "LS201", True)
    assert check.verdict == "unknown"
    assert "does not look into dataclasses" in check.why


def test_a_division_by_those_that_have_a_gradient_is_told(lockstep, tmp_path, only):
    given = BY_THOSE_THAT_HAVE_ONE, "average_gradients", "unused", "LS201"
    assert _judged(lockstep, tmp_path, only, *given, True).verdict == "pass"
    failures = _judged(lockstep, tmp_path, only, *given, False).failures
    assert {failure.cause for failure in failures} == {"missing_average"}
    assert all("divided by the number of ranks that have one" in failure.explanation for failure in failures)


def _judged(lockstep, tmp_path, only, body, name, situation, code, right):
    """The result of check ``code`` for the strategy ``name`` in ``body``, in only that situation."""
    only(situation)
    path = tmp_path / "mine.py"
    path.write_text(f"{HEAD}RIGHT = {right}\n{body}")
    report = lockstep.verify(f"{path}:{name}", world_size=2, checks=[code], profile="thorough")
    return next(check for check in report.checks if check.code == code)
