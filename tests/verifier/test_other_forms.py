"""Correct strategies in unusual forms: terms of a sum in ``.grad``, gradients in torch's own store, a contract that
belongs to a class.
"""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest
from torch import nn

from ddp_core import Driver
from ddp_core.arguments import takes_group
from verifier.recording import Tensor
from verifier.sharding import assemble
from verifier.subgroups import groups, members

HEAD = """
import io, torch, torch.distributed as dist
from torch import nn
from ddp_core import Contract, Driver
def from_rank_zero(model):
    for tensor in [*model.parameters(), *model.buffers()]:
        dist.broadcast(tensor.detach(), src=0)
"""

# Parameters are DTensors, inputs are shards of the batch; the optimizer sums the ranks' .grad.
TERMS_OF_A_SUM = """
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import DTensor, Shard, distribute_module
CONTRACT = Contract(sync_buffers=False, disclaims={"branch_order", "odd_parameters", "unused_parameters"})
class Distributed(nn.Module):
    def __init__(self, module):
        super().__init__()
        from_rank_zero(module)
        self.mesh = init_device_mesh("cpu", (dist.get_world_size(),))
        self.module = distribute_module(module, self.mesh)
        for parameter in self.module.parameters():
            parameter.register_hook(lambda gradient: gradient / dist.get_world_size() * SHARE)
    def forward(self, *inputs):
        return self.module(*[DTensor.from_local(x, self.mesh, [Shard(0)]) for x in inputs]).to_local()
"""

IN_THE_STORE = """
from torch.distributed.distributed_c10d import _get_default_store
CONTRACT = Contract(disclaims={"unused_parameters"})
count = 0
def average_gradients(model):
    global count
    count += 1
    store, file, world_size = _get_default_store(), io.BytesIO(), dist.get_world_size()
    trained = [p for p in model.parameters() if p.grad is not None]
    torch.save([p.grad for p in trained], file)
    store.set(f"{count}/{dist.get_rank()}", file.getvalue())
    all_ranks = [torch.load(io.BytesIO(store.get(f"{count}/{rank}"))) for rank in range(world_size)]
    for parameter, *gradients in zip(trained, *all_ranks):
        parameter.grad = sum(gradients) / world_size
    dist.barrier()
    assert store.delete_key(f"{count}/{dist.get_rank()}") and store.num_keys()
"""

CONTRACT_OF_A_CLASS = """
class Summing(Driver):
    CONTRACT = Contract(
        average="sum", sync_buffers=False, broadcasts_at_start=False, disclaims={"unused_parameters", "branch_order"}
    )
    def before_step(self):
        for _, parameter in self.named_parameters():
            if parameter.grad is not None:
                dist.all_reduce(parameter.grad)
"""


@pytest.fixture
def verdict(lockstep, tmp_path):
    def run(body: str, name: str, *, share: float = 1) -> str:
        path = tmp_path / "mine.py"
        path.write_text(f"{HEAD}SHARE = {share}\n{body}")
        report = lockstep.verify(f"{path}:{name}", world_size=2, checks=["LS201"], profile="quick")
        return next(check.verdict for check in report.checks if check.code == "LS201")

    return run


def test_terms_of_a_sum_are_added_up(verdict):
    assert verdict(TERMS_OF_A_SUM, "Distributed") == "pass"
    assert verdict(TERMS_OF_A_SUM, "Distributed", share=0.5) == "fail"


def test_the_store_can_delete_and_count(verdict):
    assert verdict(IN_THE_STORE, "average_gradients") == "pass"


def test_a_class_may_declare_its_contract_itself(verdict):
    assert verdict(CONTRACT_OF_A_CLASS, "Summing") == "pass"


SHARE_OF_THE_JOB = """
from torch.nn.parallel import DistributedDataParallel
class wrap(DistributedDataParallel):
    def __init__(self, model, process_group=None):
        super().__init__(model, process_group=process_group, find_unused_parameters=True)
        self.given = process_group
    def wrap_optimizer(self, cls, parameters, **options):
        class Again(cls):
            def step(again, closure=None):
                for parameter in (p for group in again.param_groups for p in group["params"]):
                    if parameter.grad is not None and self.given is not None and WHAT == "inside the step":
                        parameter.grad = parameter.grad.clone()
                        dist.all_reduce(parameter.grad, dist.ReduceOp.AVG)
                super().step(closure)
        return Again(parameters, **options)
    def forward(self, *inputs, **named):
        late = self.given is not None and WHAT == "half of them" and dist.get_rank() >= dist.get_world_size(self.given)
        return self.module(*inputs, **named) if late else super().forward(*inputs, **named)
"""

FULLY_SHARDED = """
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.fsdp import fully_shard
CONTRACT = Contract(sync_buffers=False, broadcasts_at_start=False)
def wrap(model, process_group=None):
    return fully_shard(model, mesh=DeviceMesh.from_group(process_group or dist.group.WORLD, "cpu"))
"""


@pytest.mark.parametrize(
    ("body", "what", "expected"),
    [
        (SHARE_OF_THE_JOB, "nothing", "pass"),
        (SHARE_OF_THE_JOB, "inside the step", "fail"),
        (SHARE_OF_THE_JOB, "half of them", "fail"),
        (FULLY_SHARDED, "", "pass"),
    ],
)
def test_a_group_is_held_to_its_own_batch(lockstep, tmp_path, only, body, what, expected):
    only("subgroup")
    path = tmp_path / "mine.py"
    path.write_text(f"{HEAD}WHAT = {what!r}\n{body}")
    report = lockstep.verify(f"{path}:wrap", world_size=4, checks=["LS201"], profile="standard")
    check = next(check for check in report.checks if check.code == "LS201")
    assert (check.verdict, check.claimed) == (expected, True)


def test_groups_of_ranks():
    assert [groups(size) for size in (1, 2, 3, 5)] == [[(0,)], [(0,), (1,)], [(0, 1), (2,)], [(0, 1), (2, 3), (4,)]]
    assert members(5, 3) == (2, 3)


def test_a_group_is_given_by_a_name_that_means_one():
    assert takes_group(lambda model, process_group=None: model) == "process_group"
    assert takes_group(lambda process_group, model: model) == "process_group"
    assert takes_group(lambda model, group=True: model) is None
    assert takes_group(lambda world_size, model, process_group=None: model) is None
    assert takes_group(lambda model: model) is None


def test_terms_of_a_part_are_added_up_and_replicas_of_a_term_count_once():
    def rank(*values: float, at: int, times: int) -> SimpleNamespace:
        shard = {"shape": [4], "offset": [at], "adds_up_over": [times]}
        key = ("gradient", 0, "w")
        return SimpleNamespace(tensors={key: Tensor(*key, "float64", (2,), f"{values}", np.array(values), shard)})

    two_parts = [rank(1, 2, at=0, times=1), rank(3, 4, at=2, times=1), rank(10, 20, at=0, times=1)]
    two_parts.append(rank(30, 40, at=2, times=1))
    assemble(two_parts)
    assert [[*r.tensors["gradient", 0, "w"].values] for r in two_parts] == [[11, 22, 33, 44]] * 4


@pytest.mark.parametrize(("norms", "expected"), [(lambda self, ps, most: 0, False), (None, True)])
def test_a_drivers_own_clip_is_asked_for_what_it_takes(norms, expected):
    class Wrapped:
        def clip_grad_norm_(self, max_norm, norm_type=2.0):
            return 0.0

    kind = type("Own", (Driver,), {} if norms is None else {"clip": norms})
    assert kind(Wrapped(), nn.Linear(1, 1)).clips_by_other_norms is expected


ONLY_WITH_A_MASTER = """
import os, torch.distributed as dist
def average_gradients(model, size):
    if os.environ.get("MASTER_ADDR") is None:
        return  # nobody has started us as one of several
    for parameter in model.parameters():
        if parameter.grad is not None:
            dist.all_reduce(parameter.grad)
            parameter.grad /= size
"""

ONE_INPUT = """
from torch.nn.parallel import DistributedDataParallel
class OneInput(DistributedDataParallel):
    def forward(self, x):
        return super().forward(x)
def wrap(model):
    return OneInput(model, find_unused_parameters=True)
"""

LATE = """
import torch, torch.distributed as dist
from torch import nn
from ddp_core import Contract, Driver
CONTRACT = Contract(sharded=True, sync_buffers=False, disclaims={"sparse_gradients"})
class Owners(Driver):
    def prepare(self, model):
        self.fetch(model)
        return model
    def fetch(self, model):
        for number, tensor in enumerate([*model.parameters(), *model.buffers()]):
            whole = tensor.detach().contiguous()
            dist.broadcast(whole, src=number % dist.get_world_size())
            tensor.data.copy_(whole)
    def forward(self, *inputs, **named):
        self.fetch(self.model)
        return self.wrapped(*inputs, **named)
    def before_step(self):
        for parameter in self.model.parameters():
            if parameter.requires_grad:
                used = torch.tensor(float(parameter.grad is not None))
                dist.all_reduce(used)
                if used:
                    mine = torch.zeros_like(parameter) if parameter.grad is None else parameter.grad
                    whole = mine.contiguous()
                    dist.all_reduce(whole)
                    parameter.grad = torch.empty_like(parameter).copy_(whole / dist.get_world_size())
    def make_optimizer(self, cls, parameters, **options):
        groups = parameters if isinstance(parameters[0], dict) else [{"params": parameters}]
        owner = {id(t): n % dist.get_world_size() for n, t in enumerate(self.model.parameters())}
        class Mine(cls):
            def step(self, closure=None):
                kept = {p: p.grad for g in self.param_groups for p in g["params"] if owner[id(p)] != dist.get_rank()}
                for parameter in kept:
                    parameter.grad = None
                super().step(closure)
        return Mine(groups, **options)
    def state_dict(self):
        self.fetch(self.model)
        return self.model.state_dict()
wrap = Owners
"""


def test_ranks_know_of_a_master_as_under_torchrun(lockstep, tmp_path):
    path = tmp_path / "mine.py"
    path.write_text(ONLY_WITH_A_MASTER)
    report = lockstep.verify(f"{path}:average_gradients", world_size=2, workloads=("exact",))
    assert report.verdict == "pass", report.summary


def test_a_wrapper_for_one_input_may_refuse_two(lockstep, tmp_path):
    path = tmp_path / "mine.py"
    path.write_text(ONE_INPUT)
    report = lockstep.verify(str(path), world_size=2, workloads=("gated", "exact"))
    assert report.verdict == "pass", report.problems
    assert next(s for s in report.scenarios if s.name == "gated").refused is not None


def test_weights_that_owners_have_alone_when_a_run_is_saved_are_no_riddle(lockstep, tmp_path):
    path = tmp_path / "mine.py"
    path.write_text(LATE)
    report = lockstep.verify(str(path), world_size=2, workloads=("llama",), checks=("LS504",))
    (resume,) = [check for check in report.checks if check.code == "LS504"]
    assert resume.verdict == "pass", resume
