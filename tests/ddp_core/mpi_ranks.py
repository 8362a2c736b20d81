"""Program for ``test_mpi.py``, under ``mpirun``: runs every check on every rank; compares MPI, gloo and one process.

Usage: ``mpirun -n N python -m mpi4py -m tests.ddp_core.mpi_ranks FOLDER``. Rank 0 prints one JSON line: each check's
name and the traceback of the first rank that failed it, or null. Numbers are small and whole, so that "equal" can mean
bit for bit.
"""

from __future__ import annotations

import json
import sys
import traceback
from pathlib import Path

import pytest
import torch
import torch.distributed as dist
from torch import nn

from ddp_core import mpi
from ddp_core.communicator import TorchCommunicator
from ddp_core.models import mnist_cnn
from ddp_core.mpi import MpiCommunicator
from ddp_core.synchronizer import Synchronizer


class Net(nn.Module):
    def __init__(self, seed: int) -> None:
        super().__init__()
        generator = torch.Generator().manual_seed(seed)
        self.first, self.second, self.odd = nn.Linear(6, 8), nn.Linear(8, 7, bias=False), nn.Linear(6, 7)
        self.never = nn.Linear(2, 2)
        self.register_buffer("count", torch.tensor(seed))
        for parameter in self.parameters():
            parameter.data = torch.randint(-2, 3, parameter.shape, generator=generator).float()

    def forward(self, x: torch.Tensor, *, odd: bool) -> torch.Tensor:
        out: torch.Tensor = self.second(self.first(x).relu())
        return out + self.odd(x) if odd else out


def batch(rank: int) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(100 + rank)
    rows = [torch.randint(-2, 3, (4, width), generator=generator).float() for width in (6, 7)]
    return rows[0], rows[1]


def loss(net: Net, rank: int, world: int) -> torch.Tensor:
    """A loss that is a multiple of the world size, so that means are whole numbers; rank 1 does not use ``odd``."""
    inputs, targets = batch(rank)
    return (net(inputs, odd=rank != 1) * targets).sum() * world


def check_a_training_step_is_that_of_gloo_and_of_one_process(over_mpi, over_gloo):
    world = over_mpi.world_size
    alone = Net(0)
    (sum(loss(alone, rank, world) for rank in range(world)) / world).backward()
    for options in ({}, {"use_bucketing": False}, {"bucket_cap_mb": 1e-4}):
        nets = []
        for comm in (over_mpi, over_gloo):
            net = Net(comm.rank)
            synchronizer = Synchronizer(comm, **options)
            synchronizer.broadcast_parameters(net)
            loss(net, comm.rank, world).backward()
            synchronizer.sync_gradients(net)
            nets.append(net)
            assert net.count.item() == 0
        for one, two, three in zip(nets[0].parameters(), nets[1].parameters(), alone.parameters(), strict=True):
            assert torch.equal(one, two)
            assert torch.equal(one, three)
            assert (one.grad is None) == (two.grad is None) == (three.grad is None)
            if three.grad is not None:
                assert torch.equal(one.grad, two.grad)
                assert torch.equal(one.grad, three.grad)


def check_published_counts_on_real_ranks(over_mpi, over_gloo):
    if over_mpi.world_size > 2:
        return  # counts are per rank, and gloo is slow where ranks outnumber cores
    for comm in (over_mpi, over_gloo):
        net = mnist_cnn()
        for parameter in net.parameters():
            parameter.grad = torch.ones_like(parameter)
        for use_bucketing, calls in ((True, 235), (False, 1880)):
            synchronizer = Synchronizer(comm)
            synchronizer.buckets(net)
            comm.reset_counts()
            for _ in range(235):
                synchronizer.sync_gradients(net, use_bucketing=use_bucketing)
            assert (comm.num_calls, comm.num_bytes) == (calls, 194_506_680), comm


def check_every_dtype_that_can_be_added(over_mpi, over_gloo):
    world, rank = over_mpi.world_size, over_mpi.rank
    for dtype in [*mpi.SUMMABLE, *mpi.WIDENED]:
        tensor = torch.arange(1, 6, dtype=torch.int64).mul(rank + 1).to(dtype)
        over_mpi.all_reduce(tensor)
        assert torch.equal(tensor, (torch.arange(1, 6) * (world * (world + 1) // 2)).to(dtype)), (dtype, tensor)


def check_half_precision_is_rounded_once(over_mpi, over_gloo):
    values = [256.0, 1.0, 1.0, 1.0]  # bfloat16 has 8 bits: 256 + 1 rounds back to 256
    tensor = torch.tensor([values[over_mpi.rank]], dtype=torch.bfloat16)
    over_mpi.all_reduce(tensor)
    assert tensor.item() == torch.tensor(sum(values[: over_mpi.world_size])).bfloat16().item()


def check_what_cannot_be_added_is_refused(over_mpi, over_gloo):
    for dtype in (torch.bool, torch.float8_e4m3fn):
        with pytest.raises(TypeError, match=str(dtype)):
            over_mpi.all_reduce(torch.ones(2, dtype=dtype))


def check_every_dtype_can_be_broadcast(over_mpi, over_gloo):
    root = over_mpi.world_size - 1
    for dtype in [*mpi.SUMMABLE, *mpi.WIDENED, torch.bool]:
        for shape in ((), (3,), (0,), (2, 3)):
            tensor = torch.full(shape, over_mpi.rank == root).to(dtype)
            over_mpi.bcast(tensor, root=root)
            assert torch.equal(tensor, torch.ones(shape, dtype=dtype)), (dtype, shape, tensor)


def check_strides_do_not_matter_even_if_they_differ(over_mpi, over_gloo):
    for comm in (over_mpi, over_gloo):
        expected = torch.arange(12.0).view(3, 4) * comm.world_size
        holes = torch.zeros(3, 8)[:, ::2]
        transposed, dense = torch.zeros(4, 3).t(), torch.zeros(3, 4)
        tensor = (transposed, dense, holes)[comm.rank % 3]
        tensor.copy_(torch.arange(12.0).view(3, 4))
        comm.all_reduce(tensor)
        assert torch.equal(tensor, expected), (comm, tensor)
        tensor.mul_(comm.rank + 1)
        comm.bcast(tensor)
        assert torch.equal(tensor, expected), (comm, tensor)
        parameter = nn.Parameter(tensor)
        comm.all_reduce(parameter)
        assert torch.equal(parameter, expected * comm.world_size)
        conjugated = torch.tensor([1 + 2j]).conj()
        comm.all_reduce(conjugated)
        assert conjugated.item() == (1 - 2j) * comm.world_size


def check_messages_longer_than_a_c_int_go_in_pieces(over_mpi, over_gloo):
    whole, mpi.MAX_COUNT = mpi.MAX_COUNT, 7
    try:
        tensor = torch.arange(50.0)
        over_mpi.all_reduce(tensor)
        assert torch.equal(tensor, torch.arange(50.0) * over_mpi.world_size)
        tensor.mul_(over_mpi.rank)
        over_mpi.bcast(tensor, root=1)
        assert torch.equal(tensor, torch.arange(50.0) * over_mpi.world_size)
        assert over_mpi.num_calls == 1
    finally:
        mpi.MAX_COUNT = whole


def check_the_smaller_operations(over_mpi, over_gloo):
    rank, world = over_mpi.rank, over_mpi.world_size
    assert over_mpi.gather(rank * 10, root=1) == (list(range(0, 10 * world, 10)) if rank == 1 else None)
    assert over_mpi.gather_objects({"rank": rank}) == [{"rank": each} for each in range(world)]
    over_mpi.barrier()
    over_mpi.all_reduce(torch.zeros(2, dtype=torch.bfloat16))
    counts = "num_calls=1, num_bytes=4, num_broadcasts=0, num_broadcast_bytes=0"
    assert repr(over_mpi) == f"MpiCommunicator(rank={rank}, world_size={world}, {counts})", over_mpi


def check_disagreement_is_named_on_every_rank(over_mpi, over_gloo):
    net = nn.Linear(3 + (over_mpi.rank == 1), 2)
    with pytest.raises(ValueError, match=r"rank 1 has 'weight' \(float32, shape \[2, 4\]\)"):
        Synchronizer(over_mpi).broadcast_parameters(net)


CHECKS = {name: check for name, check in globals().items() if name.startswith("check_")}


def main(folder: str) -> None:
    over_mpi = MpiCommunicator()
    store = dist.FileStore(str(Path(folder, "store")), over_mpi.world_size)
    dist.init_process_group("gloo", store=store, rank=over_mpi.rank, world_size=over_mpi.world_size)
    over_gloo = TorchCommunicator()
    results = {}
    for name, check in CHECKS.items():
        over_mpi.reset_counts()
        over_gloo.reset_counts()
        failure = None
        try:
            check(over_mpi, over_gloo)
        except Exception:
            failure = f"on rank {over_mpi.rank}: {traceback.format_exc()}"
        results[name] = next((each for each in over_mpi.gather_objects(failure) if each), None)
    if over_mpi.rank == 0:
        print(json.dumps(results), flush=True)
    over_mpi.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main(sys.argv[1])
