"""What right strategies have in other forms than usual: terms of a sum in ``.grad``, gradients in torch's own store, a
contract that belongs to a class.
"""

from __future__ import annotations

import pytest

HEAD = """
import io, torch, torch.distributed as dist
from torch import nn
from ddp_core import Contract, Driver
def from_rank_zero(model):
    for tensor in [*model.parameters(), *model.buffers()]:
        dist.broadcast(tensor.detach(), src=0)
"""

# Parameters are DTensors, inputs shards of the batch; the optimizer makes the sum of what ranks have in .grad.
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
