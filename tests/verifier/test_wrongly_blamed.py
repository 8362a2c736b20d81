"""Mistakes that were told for a wrong reason, and what was right and blamed: each says now what it is.

Special here: most of these failed before as well. What is tested is the reason.
"""

from __future__ import annotations

import pytest

HEAD = """
import torch, torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from ddp_core import Contract

def average(parameters):
    for parameter in parameters:
        dist.all_reduce(parameter.grad)
        parameter.grad /= dist.get_world_size()
"""

# DDP has averaged already.
AGAIN = """
class wrap(DistributedDataParallel):
    def reduce_gradients(self):
        average(p for p in self.parameters() if p.grad is not None)
"""

# Nobody calls what launches, and what finishes finds nothing to wait for.
NOT_STARTED = """
class wrap(nn.Module):
    def __init__(self, module):
        super().__init__()
        self.module, self.works = module, []
    def forward(self, *inputs):
        return self.module(*inputs)
    def launch_gradients_of(self, rank):
        self.works = [dist.all_reduce(p.grad, async_op=True) for p in self.module.parameters()]
    def sync_in_two_rounds(self, how):
        self.launch_gradients_of(how)
    def finish_gradient_synchronization(self):
        for work in self.works:
            work.wait()
"""

# step() exchanges the signs of gradients, and no rank has kept its own to itself.
SIGNS_ALONE = """
class Signs(torch.optim.SGD):
    @torch.no_grad()
    def step(self, closure=None):
        for group in self.param_groups:
            for p in group["params"]:
                sign = p.grad.sign()
                dist.all_reduce(sign)
                p.sub_(sign, alpha=group["lr"] / dist.get_world_size())

class wrap(nn.Module):
    contract = Contract(sync_buffers=False)
    def __init__(self, module):
        super().__init__()
        self.module = module
        for tensor in module.state_dict().values():
            dist.broadcast(tensor, 0)
    def forward(self, *inputs):
        return self.module(*inputs)
    def wrap_optimizer(self, cls, parameters, **options):
        return Signs(parameters, **options)
"""

# The model is to broadcast and to reduce, and only the latter is called: nobody calls the former.
TWO_METHODS = """
def wrap(model):
    def broadcast_parameters(self):
        for tensor in self.state_dict().values():
            dist.broadcast(tensor, 0)
    def reduce_parameters(self):
        average(p for p in self.parameters() if p.grad is not None)
    named = {"broadcast_parameters": broadcast_parameters, "reduce_parameters": reduce_parameters}
    model.__class__ = type("Mine", (type(model),), named)
    return model
"""

# What is frozen has no gradient to average.
NONE_AT_ALL = """
def wrap(model):
    def wrap_optimizer(cls, parameters, **options):
        class Averaging(cls):
            def step(self, closure=None):
                average(model.parameters())
                super().step(closure)
        return Averaging(parameters, **options)
    model.wrap_optimizer = wrap_optimizer
    return model
"""

# Only the wrapper's own flat copy is to be stepped; the model's weights are there in a forward and a backward alone.
FLAT = """
class wrap(nn.Module):
    contract = Contract(sharded=True, sync_buffers=False)
    def __init__(self, module):
        super().__init__()
        self.module = module
        for tensor in module.state_dict().values():
            dist.broadcast(tensor, 0)
        self.flat = nn.Parameter(nn.utils.parameters_to_vector(module.parameters()).detach().clone())
    def forward(self, *inputs):
        nn.utils.vector_to_parameters(self.flat.data.clone(), self.module.parameters())
        return self.module(*inputs)
    def finish_gradient_synchronization(self):
        self.flat.grad = torch.cat([p.grad.reshape(-1) for p in self.module.parameters()])
        average([self.flat])
        for parameter in self.module.parameters():
            parameter.grad = None
            parameter.data.zero_()
"""


# What is left over when a gradient is divided into one part for each rank is rank 0's own; nothing is clipped here.
REMAINDER = """
def average_gradients(model):
    for parameter in model.parameters():
        if parameter.grad is not None:
            flat = parameter.grad.view(-1)
            left_over = len(flat) % dist.get_world_size()
            own = flat[len(flat) - left_over :].clone()
            dist.all_reduce(flat)
            flat /= dist.get_world_size()
            dist.broadcast(own, 0)
            flat[len(flat) - left_over :] = own
"""

# A tenth of all elements is sent, and of the biases mostly none.
LARGEST = """
def average_gradients(model):
    gradients = [p.grad for p in model.parameters()]
    flat = torch.cat([gradient.reshape(-1) for gradient in gradients])
    sent = torch.zeros_like(flat)
    places = flat.abs().topk(len(flat) // 10).indices
    sent[places] = flat[places] / dist.get_world_size()
    dist.all_reduce(sent)
    for gradient, part in zip(gradients, sent.split([gradient.numel() for gradient in gradients])):
        gradient.copy_(part.view_as(gradient))
"""

# A gradient is dropped once it was reduced: of the last parameter, or of all.
DROPPED = """
class wrap(nn.Module):
    def __init__(self, module):
        super().__init__()
        self.module = module
    def forward(self, *inputs):
        return self.module(*inputs)
    def finish_gradient_synchronization(self):
        average(p for p in self.module.parameters() if p.grad is not None)
        for parameter in [*self.module.parameters()][WHICH]:
            parameter.grad = None
"""

# What a forward counts, it counts in clones.
CLONES = """
class wrap(DistributedDataParallel):
    def forward(self, *inputs):
        clones = {name: buffer.clone() for name, buffer in self.module.named_buffers()}
        return torch.func.functional_call(self.module, clones, inputs)
    def finish_gradient_synchronization(self):
        average(p for p in self.module.parameters() if p.grad is not None)
"""

# Who had a gradient in the first step is reduced from then on; in the fifth another branch is used, by one rank.
FROM_THE_FIRST = """
class wrap(nn.Module):
    contract = Contract(sync_buffers=False)
    def __init__(self, module):
        super().__init__()
        self.module, self.reduced = module, None
    def forward(self, *inputs):
        return self.module(*inputs)
    def finish_gradient_synchronization(self):
        trained = [*self.module.parameters()]
        used = torch.tensor([float(p.grad is not None) for p in trained])
        dist.all_reduce(used)
        if self.reduced is None:
            self.reduced = used > 0
        for parameter, is_used, is_reduced in zip(trained, used, self.reduced):
            if is_used and is_reduced:
                parameter.grad = torch.zeros_like(parameter) if parameter.grad is None else parameter.grad
                average([parameter])
"""


@pytest.fixture
def judged(lockstep, tmp_path, only):
    def judge(body, name, situation, code, *more):
        only(situation, *more)
        path = tmp_path / "mine.py"
        path.write_text(HEAD + body)
        report = lockstep.verify(f"{path}:{name}", world_size=2, checks=[code], profile="thorough")
        return next(check for check in report.checks if check.code == code)

    return judge


def test_means_that_are_reduced_again_are_waste(judged):
    check = judged(AGAIN, "wrap", "large", "LS701")
    assert {failure.cause for failure in check.failures} == {"reduced_too_much"}
    assert "--driver native" in check.failures[0].hint


def test_methods_beside_the_one_that_finishes_are_named(judged):
    check = judged(NOT_STARTED, "wrap", "plain", "LS201")
    failure = check.failures[0]
    assert (failure.cause, failure.confidence) == ("not_synchronised", 0.5)
    assert "sync_in_two_rounds()" in failure.explanation
    assert "finish_gradient_synchronization()" not in failure.explanation


def test_a_crash_in_the_first_step_is_not_blamed_on_loading(judged):
    check = judged(NONE_AT_ALL, "wrap", "restart_early", "LS504")
    assert (check.verdict, check.failures) == ("unknown", [])
    assert check.why.startswith("refused, and not claimed: TypeError")


def test_a_wrapper_whose_own_parameters_are_to_be_stepped_is_not_judged(judged):
    check = judged(FLAT, "wrap", "plain", "LS202")
    assert check.verdict == "unknown"
    assert "trained parameters of its own (flat)" in check.why
    assert "make_optimizer()" in check.why


def test_clipping_is_no_cause_where_gradients_are_wrong_without_it(judged):
    check = judged(REMAINDER, "average_gradients", "plain", "LS201", "realistic", "named_inputs", "clipping_groups")
    assert {"plain", "realistic", "named_inputs", "clipping_groups"} <= set(check.failed_in)
    assert not any((failure.cause or "").startswith("clipped") for failure in check.failures)


def test_zeros_may_be_elements_that_nobody_sent(judged):
    check = judged(LARGEST, "average_gradients", "plain", "LS201")
    found = {failure.cause: failure for failure in check.failures}
    assert "elements_left_out" in found
    assert found["gradient_cleared"].confidence <= 0.5


def test_what_never_moves_is_not_blamed_on_an_infinity(judged):
    check = judged(DROPPED.replace("WHICH", ":"), "wrap", "plain", "LS202", "overflow")
    assert (check.verdict, check.failures) == ("unknown", [])


def test_what_has_no_gradient_is_not_blamed_on_an_owner(judged):
    check = judged(DROPPED.replace("WHICH", "-1:"), "wrap", "overflow", "LS202")
    assert "left_out_in_part" not in {failure.cause for failure in check.failures}


def test_counters_that_stand_still_were_not_copied_wrongly(judged):
    check = judged(CLONES, "wrap", "buffers", "LS102")
    hints = {failure.hint for failure in check.failures if failure.cause == "buffers_miscounted"}
    assert hints
    assert all("a forward counts in the model's own buffers" in hint for hint in hints)


def test_what_one_rank_used_and_nobody_reduced_was_not_summed(judged):
    check = judged(FROM_THE_FIRST, "wrap", "unused_adamw", "LS201")
    found = {failure.cause: failure for failure in check.failures}
    assert found["missing_average"].confidence == 0.5
    assert "reduced nowhere" in found["missing_average"].explanation
    assert found["missing_gradient"].hint.startswith("reduce on all ranks what some rank used")


def test_what_is_exchanged_inside_a_step_was_not_kept_to_itself(judged):
    check = judged(SIGNS_ALONE, "wrap", "plain", "LS201")
    assert {failure.confidence for failure in check.failures} == {0.6}
    assert all("step() communicates" in failure.explanation for failure in check.failures)


def test_a_method_that_makes_replicas_equal_is_named(judged):
    check = judged(TWO_METHODS, "wrap", "different_start", "LS001")
    assert check.failures
    assert all("call broadcast_parameters() there" in failure.hint for failure in check.failures)
