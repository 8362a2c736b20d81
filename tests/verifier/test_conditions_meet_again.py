"""More mistakes that show only where two conditions meet: a start and a layout, nodes and micro-batches, a loop's acts
and accumulated gradients. Each is tried with and without the mistake, in the one situation that has both conditions.

Special here: as in ``test_conditions_that_meet``; mistakes of half precision are in ``test_halves``.
"""

from __future__ import annotations

import pytest

HEAD = """
import os
import torch, torch.distributed as dist
from torch import nn
from ddp_core import Contract
CONTRACT = Contract(sync_buffers=False, disclaims={"sparse_gradients"})
def mean_of(parameters, group=None):
    used = torch.tensor([int(p.grad is not None) for p in parameters])
    dist.all_reduce(used, group=group)
    for p, number in zip(parameters, used.tolist()):
        if number:
            gradient = (torch.zeros_like(p) if p.grad is None else p.grad).contiguous() / dist.get_world_size()
            dist.all_reduce(gradient)
            p.grad = gradient
def this_node():
    n = int(os.environ["LOCAL_WORLD_SIZE"])
    groups = [dist.new_group([*range(i, i + n)]) for i in range(0, dist.get_world_size(), n)]
    return groups[dist.get_rank() // n], n
class Replica(nn.Module):
    def __init__(self, module):
        super().__init__()
        self.module = module
        for tensor in [*module.parameters(), *module.buffers()]:
            self.start(tensor)
    def start(self, tensor):
        whole = tensor.detach().contiguous()
        dist.broadcast(whole, src=0)
        tensor.data.copy_(whole)
    def forward(self, *inputs):
        return self.module(*inputs)
    def sync_gradients(self):
        mean_of([*self.module.parameters()])
"""

COPIES = """
class wrap(Replica):
    def start(self, tensor):
        if RIGHT or isinstance(tensor, nn.Parameter) != (WHAT == "weights"):
            return super().start(tensor)
        dist.broadcast(tensor.detach().contiguous(), src=0)
        if tensor.is_contiguous():
            super().start(tensor)
"""

OF_BUFFERS = COPIES + 'WHAT = "buffers"\nCONTRACT = Contract()'

KINDS = """
class wrap(Replica):
    def start(self, tensor):
        if tensor.is_floating_point() or not tensor.is_complex() or RIGHT:
            super().start(tensor)
"""

USED_IN_A_NODE = """
class wrap(Replica):
    def sync_gradients(self):
        mean_of([*self.module.parameters()], None if RIGHT else this_node()[0])
"""

LAST_BETWEEN_NODES = """
class wrap(Replica):  # every backward is averaged in a node, and only the last one's share between nodes
    def __init__(self, module):
        super().__init__(module)
        self.node, self.n = this_node()
        ranks = range(dist.get_world_size())
        across = [dist.new_group([rank for rank in ranks if rank % self.n == i]) for i in range(self.n)]
        self.across, self.total = across[dist.get_rank() % self.n], {}
    def reduced(self, gradient, group, number):
        gradient = gradient / number
        dist.all_reduce(gradient, group=group)
        return gradient
    def backward(self, loss):
        loss.backward()
        self.last = {}
        for p in self.module.parameters():
            self.last[p], p.grad = self.reduced(p.grad, self.node, self.n), None
            self.total[p] = self.total.get(p, 0) + self.last[p]
    def sync_gradients(self):
        nodes = dist.get_world_size() // self.n
        for p, total in self.total.items():
            sent = total if RIGHT else self.last[p]
            p.grad = (total - sent) + self.reduced(sent, self.across, nodes)
        self.total = {}
"""

NORM_OVER_NODES = """
class wrap(Replica):  # each rank of a node has its share of the whole
    def __init__(self, module):
        super().__init__(module)
        self.node, self.n = this_node()
    def clip_grad_norm_(self, max_norm):
        every = [p.grad for p in self.module.parameters() if p.grad is not None]
        mine = every[dist.get_rank() % self.n :: self.n]
        square = sum((gradient.square().sum() for gradient in mine), torch.zeros((), dtype=torch.float64))
        dist.all_reduce(square, group=self.node if RIGHT else None)
        for gradient in every:
            gradient.mul_((max_norm / (square.sqrt() + 1e-6)).clamp(max=1.0))
        return square.sqrt()
"""

CLEARED_BY_A_CHECKPOINT = """
class wrap(Replica):
    def state_dict(self):
        if not RIGHT:
            for p in self.module.parameters():
                p.grad = None
        return self.module.state_dict()
    def load_state_dict(self, saved):
        self.module.load_state_dict(saved)
"""

KEPT_AFTER_LOADING = """
class wrap(Replica):  # main gradients beside .grad; what is set up anew does not add any more
    def __init__(self, module):
        super().__init__(module)
        self.main, self.adding = {}, True
    def backward(self, loss):
        loss.backward()
        for p in [p for p in self.module.parameters() if p.grad is not None]:
            self.main[p] = self.main[p] + p.grad if self.adding and p in self.main else p.grad
            p.grad = None
    def sync_gradients(self):
        for p, gradient in self.main.items():
            p.grad = gradient
        self.main = {}
        super().sync_gradients()
    def zero_grad_buffer(self):
        self.main = {}
    def state_dict(self):
        return self.module.state_dict()
    def load_state_dict(self, saved):
        self.module.load_state_dict(saved)
        self.main, self.adding = {}, RIGHT
"""

CLIPS_BY_MEMORY = """
class wrap(Replica):
    def clip_grad_norm_(self, max_norm):
        every = [p for p in self.module.parameters() if p.grad is not None]
        flat = torch.cat([p.grad.reshape(-1) for p in every])
        norm = flat.norm()
        parts = (flat * (max_norm / (norm + 1e-6)).clamp(max=1.0)).split([p.numel() for p in every])
        for p, part in zip(every, parts):
            p.grad = part.view(p.shape).clone() if RIGHT else part.clone().as_strided(p.shape, p.stride())
        return norm
"""

RANK_0_DECIDES = """
class wrap(Replica):
    def bad(self):
        return any(not p.grad.isfinite().all() for p in self.module.parameters() if p.grad is not None)
    def step(self, optimizer):
        flag = torch.tensor(float(self.bad()))
        dist.all_reduce(flag) if RIGHT else dist.broadcast(flag, src=0)
        self.sync_gradients()
        if not flag:
            optimizer.step()
"""

NO_ROWS = """
CONTRACT = Contract(sync_buffers=False)
def average_gradients(model):
    for p in model.parameters():
        if not p.grad.is_sparse:
            dist.all_reduce(p.grad)
            p.grad /= dist.get_world_size()
            continue
        mine, parts = p.grad.coalesce(), [None] * dist.get_world_size()
        dist.all_gather_object(parts, (mine.indices(), mine.values()))
        if len(mine.values()) or RIGHT:  # "nothing to add"
            rows, values = (torch.cat(of, dim) for of, dim in zip(zip(*parts), (1, 0)))
            p.grad = torch.sparse_coo_tensor(rows, values / len(parts), p.shape)
"""

PLACES = """
def average_gradients(model):
    for p in model.parameters():  # what is not zero, with the places of that in the same tensor
        flat = p.grad.flatten()
        places = flat.nonzero().flatten()
        if not RIGHT:
            places = places.to(flat.dtype).long().clamp(max=len(flat) - 1)
        sent, whole = flat[flat.nonzero().flatten()], torch.zeros_like(flat)
        whole[places] = sent
        dist.all_reduce(whole)
        p.grad = (whole / dist.get_world_size()).view(p.shape)
"""

BUCKETS = """
class wrap(Replica):
    def __init__(self, module, bucket_cap_mb=25):
        super().__init__(module)
        self.cap = bucket_cap_mb * 2**20
    def sync_gradients(self):
        every, buckets, size = [*self.module.parameters()], [[]], 0
        used = torch.tensor([int(p.grad is not None) for p in every])
        dist.all_reduce(used)
        for p, number in zip(every, used.tolist()):
            if size + p.numel() * 8 > self.cap and buckets[-1]:
                buckets, size = [*buckets, []], 0
            buckets[-1].append((p, number))
            size += p.numel() * 8
        for bucket in buckets:
            if not any(number if RIGHT else p.grad is not None for p, number in bucket):
                continue  # "nothing to send"
            flat = torch.cat([(torch.zeros_like(p) if p.grad is None else p.grad).flatten() for p, _ in bucket])
            dist.all_reduce(flat)
            for (p, number), part in zip(bucket, (flat / dist.get_world_size()).split([p.numel() for p, _ in bucket])):
                p.grad = part.view(p.shape) if number else None
"""

# Averaged at the end of the backward, which is asked for once: for each wrapper, or for all that the process has.
AT_THE_END = """
from torch.autograd import Variable
class wrap(Replica):
    asked, sync_gradients = False, None
    def __init__(self, module):
        super().__init__(module)
        for p in module.parameters():
            if p.requires_grad:
                p.register_post_accumulate_grad_hook(self.arrived)
    def arrived(self, _):
        whose = self if RIGHT else wrap
        if not whose.asked:
            whose.asked = True
            Variable._execution_engine.queue_callback(self.ended)
    def ended(self):
        (self if RIGHT else wrap).asked = False
        mean_of([p for p in self.module.parameters() if p.requires_grad])
"""

# How many backwards a step has is taken to be what the first step had: in a longer one the rest stays with its rank.
WINDOW = """
class wrap(Replica):
    seen, usual, sync_gradients = 0, None, None
    def __init__(self, module):
        super().__init__(module)
        self.trained = [p for p in module.parameters() if p.requires_grad]
        for p in self.trained:
            p.register_hook(self.arrived)
        self.asked = False
    def forward(self, *inputs):
        if all(p.grad is None for p in self.trained):  # a new window
            self.usual, self.seen = self.usual or self.seen or None, 0
        return self.module(*inputs)
    def arrived(self, _):
        if not self.asked:
            self.asked = True
            torch.autograd.Variable._execution_engine.queue_callback(self.ended)
    def ended(self):
        self.asked = False
        self.seen += 1
        if RIGHT or self.usual is None or self.seen == self.usual:
            mean_of(self.trained)
"""


@pytest.mark.parametrize("right", [True, False])
@pytest.mark.parametrize(
    ("body", "situation", "code", "name"),
    [
        pytest.param(COPIES + 'WHAT = "weights"', "strided_start", "LS001", "wrap", id="weights_sent_as_copies"),
        pytest.param(OF_BUFFERS, "strided_start", "LS002", "wrap", id="buffers_sent_as_copies"),
        pytest.param(KINDS, "complex_start", "LS001", "wrap", id="neither_floats_nor_whole"),
        pytest.param(USED_IN_A_NODE, "nodes_unused", "LS201", "wrap", id="used_in_a_node"),
        pytest.param(LAST_BETWEEN_NODES, "nodes_accumulated", "LS201", "wrap", id="the_last_between_nodes"),
        pytest.param(NORM_OVER_NODES, "nodes_accumulated", "LS201", "wrap", id="a_norm_over_nodes"),
        pytest.param(CLEARED_BY_A_CHECKPOINT, "accumulation", "LS201", "wrap", id="cleared_by_a_checkpoint"),
        pytest.param(KEPT_AFTER_LOADING, "rolled_back_accumulated", "LS504", "wrap", id="kept_after_loading"),
        pytest.param(CLIPS_BY_MEMORY, "clipping_strided", "LS201", "wrap", id="clips_by_memory"),
        pytest.param(RANK_0_DECIDES, "no_number", "LS202", "wrap", id="rank_0_decides"),
        pytest.param(NO_ROWS, "sparse", "LS201", "average_gradients", id="sparse_without_rows"),
        pytest.param(PLACES, "mixed_dtypes", "LS201", "average_gradients", id="places_in_half_precision"),
        pytest.param(AT_THE_END, "joint_backward", "LS201", "wrap", id="one_end_for_two_models"),
        pytest.param(WINDOW, "accumulation", "LS201", "wrap", id="a_window_longer_than_the_first"),
        pytest.param(BUCKETS, "unused_buckets", "LS201", "wrap", id="a_bucket_that_is_not_used"),
    ],
)
def test_where_they_meet(lockstep, tmp_path, only, body, situation, code, name, right):
    only(situation)
    path = tmp_path / "mine.py"
    path.write_text(f"{HEAD}RIGHT = {right}\n{body}")
    report = lockstep.verify(f"{path}:{name}", world_size=2, profile="standard")  # chosen by its text where necessary
    check = next(check for check in report.checks if check.code == code)
    assert check.verdict == report.verdict == ("pass" if right else "fail"), check
