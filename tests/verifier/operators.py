"""One call of every operator of c10d, in a group of any size; returns the Work, or None, and the result's tensors."""

from __future__ import annotations

import torch
import torch.distributed as dist
import torch.distributed._functional_collectives as functional

from tests.verifier.forked import mine
from verifier.observe.poison import is_spoilt


def all_reduce(r, n, group):
    t = mine(r)
    return dist.all_reduce(t, group=group, async_op=True), [t]


def all_reduce_average_of_doubles(r, n, group):
    t = mine(r, dtype=torch.float64)
    return dist.all_reduce(t, dist.ReduceOp.AVG, group=group, async_op=True), [t]


def all_reduce_bfloat16(r, n, group):
    t = mine(r, dtype=torch.bfloat16)
    return dist.all_reduce(t, group=group, async_op=True), [t]


def all_reduce_coalesced(r, n, group):
    ts = [mine(r, 3), mine(r, 5)]
    with dist._coalescing_manager(group, async_ops=True) as manager:
        for t in ts:
            dist.all_reduce(t, group=group)
    return manager, ts


def gather_into_tensor_coalesced(r, n, group):
    ts = [torch.zeros(3 * n), torch.zeros(2 * n)]
    with dist._coalescing_manager(group, async_ops=True) as manager:
        for t in ts:
            dist.all_gather_into_tensor(t, mine(r, t.numel() // n), group=group)
    return manager, ts


def reduce_scatter_tensor_coalesced(r, n, group):
    ts = [torch.zeros(3), torch.zeros(2)]
    with dist._coalescing_manager(group, async_ops=True) as manager:
        for t in ts:
            dist.reduce_scatter_tensor(t, mine(r, t.numel() * n), group=group)
    return manager, ts


def broadcast(r, n, group):
    t = mine(r)
    return dist.broadcast(t, group=group, group_src=1, async_op=True), [t]


def reduce(r, n, group):
    t = mine(r)
    return dist.reduce(t, group=group, group_dst=1, async_op=True), [t] if r == 1 else []


def all_gather(r, n, group):
    ts = [torch.zeros(6) for _ in range(n)]
    return dist.all_gather(ts, mine(r), group=group, async_op=True), ts


def all_gather_coalesced(r, n, group):
    rows = [[torch.zeros(2), torch.zeros(3)] for _ in range(n)]
    options = dist.distributed_c10d.AllgatherOptions()
    work = group.allgather_coalesced(rows, [mine(r, 2), mine(r, 3)], options)
    return work, [t for row in rows for t in row]


def all_gather_into_tensor(r, n, group):
    t = torch.zeros(6 * n)
    return dist.all_gather_into_tensor(t, mine(r), group=group, async_op=True), [t]


def all_gather_in_place(r, n, group):
    t = torch.zeros(6 * n)
    t[6 * r : 6 * r + 6] = mine(r)
    return dist.all_gather_into_tensor(t, t[6 * r : 6 * r + 6], group=group, async_op=True), [t]


def reduce_scatter(r, n, group):
    t = torch.zeros(4)
    return dist.reduce_scatter(t, [mine(r + k, 4) for k in range(n)], group=group, async_op=True), [t]


def reduce_scatter_tensor(r, n, group):
    t = torch.zeros(4)
    return dist.reduce_scatter_tensor(t, mine(r, 4 * n), group=group, async_op=True), [t]


def all_to_all(r, n, group):
    ts = [torch.zeros(2) for _ in range(n)]
    return dist.all_to_all(ts, [mine(r + k, 2) for k in range(n)], group=group, async_op=True), ts


def all_to_all_single(r, n, group):
    t = torch.zeros(2 * n)
    return dist.all_to_all_single(t, mine(r, 2 * n), group=group, async_op=True), [t]


def all_to_all_uneven(r, n, group):
    t = torch.zeros(n * (r + 1), 2)
    given = mine(r, n * (n + 1)).view(-1, 2)
    splits = ([r + 1] * n, list(range(1, n + 1)))
    return dist.all_to_all_single(t, given, *splits, group=group, async_op=True), [t]


def gather(r, n, group):
    ts = [torch.zeros(6) for _ in range(n)] if r == 0 else None
    return dist.gather(mine(r), ts, group=group, group_dst=0, async_op=True), ts or []


def scatter(r, n, group):
    t = torch.zeros(6)
    given = [mine(k) for k in range(n)] if r == 1 else None
    return dist.scatter(t, given, group=group, group_src=1, async_op=True), [t]


def barrier(r, n, group):
    return dist.barrier(group=group, async_op=True), []


def monitored_barrier(r, n, group):
    return dist.monitored_barrier(group=group), []


def ring(r, n, group):
    t = torch.zeros(6)
    operations = [
        dist.P2POp(dist.isend, mine(r), group=group, group_peer=(r + 1) % n, tag=3),
        dist.P2POp(dist.irecv, t, group=group, group_peer=(r - 1) % n, tag=3),
    ]
    works = dist.batch_isend_irecv(operations)
    works[0].wait()
    return works[1], [t]


def from_anyone(r, n, group):
    t = torch.zeros(6)
    if r == 1:
        return dist.isend(mine(r), group=group, group_dst=0, tag=7), []
    if r > 1:
        return None, []
    source = dist.recv(t, group=group, tag=7)
    return None, [t, torch.tensor(source)]


def sparse_all_reduce(r, n, group):
    t = torch.sparse_coo_tensor([[r, r + 1]], [1.0, 2.0], (8,))
    dist.all_reduce(t, group=group)
    return None, [t.to_dense()]


def objects(r, n, group):
    found = [None] * n
    dist.all_gather_object(found, {"rank": r, "text": "x" * (r + 1)}, group=group)
    return None, [torch.tensor([f["rank"] + len(f["text"]) for f in found])]


def functional_collectives(r, n, group):
    a = functional.all_reduce(mine(r), "sum", group)
    b = functional.all_gather_tensor(mine(r), 0, group)
    return None, [a + 0, b + 0]


def in_inference_mode(r, n, group):
    with torch.inference_mode():
        t = mine(r)
        dist.all_reduce(t, group=group)
    return None, [t.clone()]


OPERATORS = {  # the operator that each case is about
    all_reduce: "allreduce_",
    all_reduce_average_of_doubles: "allreduce_",
    all_reduce_bfloat16: "allreduce_",
    all_reduce_coalesced: "allreduce_coalesced_",
    gather_into_tensor_coalesced: "allgather_into_tensor_coalesced_",
    reduce_scatter_tensor_coalesced: "reduce_scatter_tensor_coalesced_",
    broadcast: "broadcast_",
    reduce: "reduce_",
    all_gather: "allgather_",
    all_gather_coalesced: "allgather_coalesced_",
    all_gather_into_tensor: "_allgather_base_",
    all_gather_in_place: "_allgather_base_",
    reduce_scatter: "reduce_scatter_",
    reduce_scatter_tensor: "_reduce_scatter_base_",
    all_to_all: "alltoall_",
    all_to_all_single: "alltoall_base_",
    all_to_all_uneven: "alltoall_base_",
    gather: "gather_",
    scatter: "scatter_",
    barrier: "barrier",
    monitored_barrier: "monitored_barrier_",
    ring: "recv_",
    from_anyone: "recv_any_source_",
    sparse_all_reduce: "allreduce_",
    objects: "allgather_",
    functional_collectives: "allreduce_",
    in_inference_mode: "allreduce_",
}


def outcome(case, r, n, group):
    """The result of ``case``, and whether an early look found poison in each tensor that is to hold a result."""
    work, tensors = case(r, n, group)
    read_only = (case is broadcast and r == 1) or not tensors
    poisoned = work is not None and not read_only and all(is_spoilt(t) for t in tensors)
    if read_only and case is broadcast:
        torch.testing.assert_close(tensors[0], mine(r), rtol=0, atol=0)  # the root may read while it sends
    if work is not None:
        work.wait()
    return [t.clone() for t in tensors], poisoned or work is None or read_only
